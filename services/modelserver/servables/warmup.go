package servables

import (
	"bufio"
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
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/services/modelserver/entry"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const (
	warmUpFile    = "assets.extra/tf_serving_warmup_requests" // in the folder of a version
	maxWarmUps    = 1000                                      // requests in it
	maxWarmUpSize = 16 << 20                                  // bytes of one: what a caller may send
	warmUpTime    = time.Minute                               // after which the rest is left out
	rowsPause     = 5 * time.Millisecond                      // between two looks for rows, at first
)

// WarmUp answers a request that was recorded in the folder of a version, by a model that does not answer
// callers yet, and forgets the answer.
type WarmUp func(ctx context.Context, m *entry.Model, folder string, recorded *apis.PredictionLog) error

// warmUp replays the requests that were exported beside a model, before anybody else asks it. One that
// the model refuses fails the version; where rows cannot be had for a while, or it takes too long, the rest is
// left out: without its shards a version is AVAILABLE in the end, too.
func (s *keeper) warmUp(ctx context.Context, m *entry.Model, at exportLocation) error {
	folder := filepath.Join(at.basePath, strconv.FormatInt(at.number, 10))
	path := filepath.Join(folder, filepath.FromSlash(warmUpFile))
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failed(fmt.Errorf("warm-up requests: %w", err))
	}
	defer f.Close()
	if err := countWarmUps(f); err != nil {
		return failed(err)
	}
	within, cancel := context.WithTimeout(ctx, warmUpTime)
	defer cancel()
	waiting, cancel := context.WithTimeout(within, s.WarmUpWait)
	defer cancel()
	began, n := time.Now(), 0
	for r := tfrecord.NewReader(bufio.NewReader(f), maxWarmUpSize); ; n++ {
		record, err := r.Next()
		if err == io.EOF {
			break
		}
		recorded := &apis.PredictionLog{}
		if err == nil {
			err = proto.Unmarshal(record, recorded)
		}
		if err != nil {
			return &loadError{codes.DataLoss, fmt.Errorf("%s: record %d is no PredictionLog: %w", path, n, err)}
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
	}
	s.Log.Info("warmed up", "file", path, "requests", n, "took", time.Since(began))
	return nil
}

// countWarmUps refuses a file that is broken or too long before anything of it is replayed.
func countWarmUps(f *os.File) error {
	r := tfrecord.NewReader(bufio.NewReader(f), maxWarmUpSize)
	for n := 0; ; n++ {
		_, err := r.Next()
		switch {
		case err == io.EOF:
			_, err = f.Seek(0, io.SeekStart)
			return err
		case err != nil:
			return &loadError{codes.DataLoss, fmt.Errorf("%s: record %d is broken: %w", f.Name(), n, err)}
		case n == maxWarmUps:
			return &loadError{codes.InvalidArgument, fmt.Errorf("%s: Number of warmup records exceeds the maximum (%d) supported; keep the first ones", f.Name(), maxWarmUps)}
		}
	}
}
