// Package serving measures what versions and updates of a model server cost those who ask it.
package serving

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/loadtest/openloop"
)

const (
	tableName = "item"
	askRate   = 500 // lookups a second, of a full run
	askIDs    = 200 // of each
	patience  = 2 * time.Minute
)

// resident is the memory of a process, in bytes.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("resident memory is read on Linux: %w", err)
	}
	var pages int64
	if f := strings.Fields(string(text)); len(f) > 1 {
		pages, err = strconv.ParseInt(f[1], 10, 64)
	}
	if err != nil || pages == 0 {
		return 0, fmt.Errorf("process %d: %q tells no memory: %w", pid, text, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// settled is this process' memory once the collector, and what it has others clean up, give nothing back any more.
func settled(ctx context.Context) (int64, error) {
	const alike = 256 << 10
	for last := int64(0); ; {
		debug.FreeOSMemory()
		now, err := resident(os.Getpid())
		if err != nil || last > 0 && last-now < alike {
			return now, err
		}
		last = now
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// asked makes calls at a rate by the clock until ctx ends, and returns what became of them.
func asked(ctx context.Context, rate float64, call func(ctx context.Context, n int) error) (openloop.Result, error) {
	rec := openloop.NewRecorder(time.Now(), nil)
	pace := openloop.Config{Rate: rate, MaxInFlight: 1 << 12, Timeout: time.Minute, Precise: true}
	if err := openloop.Run(ctx, pace, func(n int) openloop.Call { return func(ctx context.Context) error { return call(ctx, n) } }, rec.Observe); err != nil {
		return openloop.Result{}, err
	}
	res, err := rec.Result()
	if err == nil && res.Answered < res.Calls {
		err = fmt.Errorf("%d of %d lookups failed: %v", res.Calls-res.Answered, res.Calls, res.Errors)
	}
	return res, err
}
