package servables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/warmupfile"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/services/modelserver/entry"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const (
	warmUpTime = time.Minute          // after which the rest is left out
	rowsPause  = 5 * time.Millisecond // between two looks for rows, at first
)

// WarmUp answers a request that was recorded in the folder of a version, by a model that does not answer
// callers yet, and forgets the answer.
type WarmUp func(ctx context.Context, m *entry.Model, folder string, recorded *apis.PredictionLog) error

// warmUp replays the requests that were exported beside a model, before anybody else asks it. One that
// the model refuses fails the version; where rows cannot be had for a while, or it takes too long, the rest is
// left out: without its shards a version is AVAILABLE in the end, too.
func (s *keeper) warmUp(ctx context.Context, m *entry.Model, at exportLocation) error {
	folder := filepath.Join(at.basePath, strconv.FormatInt(at.number, 10))
	path := filepath.Join(folder, filepath.FromSlash(warmupfile.Name))
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failed(fmt.Errorf("warm-up requests: %w", err))
	}
	defer f.Close()
	if err := checkWarmUps(f); err != nil {
		return failed(err)
	}
	within, cancel := context.WithTimeout(ctx, warmUpTime)
	defer cancel()
	waiting, cancel := context.WithTimeout(within, s.WarmUpWait)
	defer cancel()
	began, n := time.Now(), 0
	for recorded, err := range warmupfile.Requests(f) {
		if err != nil {
			return &loadError{codes.DataLoss, fmt.Errorf("%s: %w", path, err)}
		}
		err = s.WarmUp(within, m, folder, recorded)
		for pause := retry.New(rowsPause, 20*rowsPause); status.Code(err) == codes.Unavailable && pause.Wait(waiting) == nil; {
			err = s.WarmUp(within, m, folder, recorded) // the shards change to the version as the entry does, and have more to read
		}
		switch status.Code(err) {
		case codes.OK:
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.Log.Warn("warm-up ends early", "file", path, "replayed", n, "took", time.Since(began), "because", err)
			return nil
		default:
			return &loadError{status.Code(err), fmt.Errorf("%s: record %d: %s; mend the file, leave it out, or start with --enable-model-warmup=false", path, n, status.Convert(err).Message())}
		}
		n++
	}
	s.Log.Info("warmed up", "file", path, "requests", n, "took", time.Since(began))
	return nil
}

// checkWarmUps refuses a file that is broken or too long before anything of it is replayed.
func checkWarmUps(f *os.File) error {
	for _, err := range warmupfile.Requests(f) {
		switch {
		case errors.Is(err, warmupfile.ErrTooMany):
			return &loadError{codes.InvalidArgument, fmt.Errorf("%s: Number of warmup records exceeds the maximum (%d) supported; keep the first ones", f.Name(), warmupfile.MaxRequests)}
		case err != nil:
			return &loadError{codes.DataLoss, fmt.Errorf("%s: %w", f.Name(), err)}
		}
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}
