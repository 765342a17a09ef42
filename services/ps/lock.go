package ps

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// lockRetry is how often a lock that is held is tried again.
const lockRetry = 20 * time.Millisecond

// lock waits until nobody else, in this process or another, holds the file at path, or ctx ends. unlock takes the
// file away; one that a killed process left is held by nobody.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	for {
		l := flock.New(path)
		if _, err := l.TryLockContext(ctx, lockRetry); err != nil {
			return nil, err
		}
		held, err := l.Stat()
		at, gone := os.Stat(path)
		if err == nil && gone == nil && os.SameFile(held, at) {
			return func() { _, _ = os.Remove(path), l.Close() }, nil
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return nil, err
		}
		if gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			return nil, gone
		}
		// whoever held it before took it away after it was opened here
	}
}
