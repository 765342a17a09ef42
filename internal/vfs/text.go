package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/monolith-go/monolith/internal/retry"
)

// Tries is how often a file is read or copied before its error counts.
const Tries = 5

// The pauses between tries.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
)

// ReadText reads a file of at most limit bytes, and tries again where the place does not answer. A file that is
// not there, or larger, is an error at once.
func ReadText(ctx context.Context, path string, limit int64) (text []byte, err error) {
	err = again(ctx, Tries, func() error {
		text, err = readText(path, limit)
		return err
	})
	if errors.Is(err, errTooLarge) {
		return nil, fmt.Errorf("%s is larger than %d bytes, which no such file is", path, limit)
	}
	if named := new(fs.PathError); err != nil && !errors.As(err, &named) {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return text, err
}

// errTooLarge is an error that no second try mends.
var errTooLarge = errors.New("too large")

func readText(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, errTooLarge
	}
	return text, nil
}

// again calls do until it succeeds, so many times at most, with pauses that grow. What another try cannot
// mend ends it.
func again(ctx context.Context, tries int, do func() error) error {
	pauses := retry.New(firstPause, lastPause)
	for n := 1; ; n++ {
		err := do()
		if err == nil || n == tries || settled(err) || ctx.Err() != nil {
			return err
		}
		if pauses.Wait(ctx) != nil {
			return err
		}
	}
}

// settled says whether err is an answer, which the next try would get again.
func settled(err error) bool {
	if errors.Is(err, errNoSource) {
		return false
	}
	for _, e := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid, errTooLarge, ErrConfiguration} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
