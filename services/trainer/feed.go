package trainer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
)

// errDone says that a bounded partition is learnt to its end.
var errDone = errors.New("the partition is learnt to its end")

// feed reads a partition ahead of its learner.
type feed struct {
	ch     chan []kafka.Record
	err    error // set before ch is closed
	buf    []kafka.Record
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

const readAhead = 2 // fetches

func newFeed(ctx context.Context, r *kafka.Reader, from int64) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{ch: make(chan []kafka.Record, readAhead), cancel: cancel}
	f.wg.Go(func() {
		defer close(f.ch)
		for next := from; ; {
			recs, err := r.Fetch(ctx, next)
			if err != nil {
				f.err = err
				return
			}
			if len(recs) == 0 {
				continue
			}
			next = recs[len(recs)-1].Offset + 1
			select {
			case f.ch <- recs:
			case <-ctx.Done():
				f.err = ctx.Err()
				return
			}
		}
	})
	return f
}

func (f *feed) close() {
	f.cancel()
	f.wg.Wait()
}

// more waits for another fetch; late (nil: never) ends the wait without one.
func (f *feed) more(ctx context.Context, late <-chan time.Time) (ok bool, err error) {
	select {
	case recs, open := <-f.ch:
		if !open {
			return false, f.err
		}
		f.buf = append(f.buf, recs...)
		return true, nil
	case <-late:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// upTo takes what is below limit from the buffer, at most n records, and returns it
// with the offset behind it: limit itself once the log is known to go on there.
func (f *feed) upTo(limit int64, n int) (recs []kafka.Record, to int64) {
	i := 0
	for i < len(f.buf) && i < n && f.buf[i].Offset < limit {
		i++
	}
	recs = f.buf[:i:i]
	switch {
	case i < len(f.buf) && f.buf[i].Offset >= limit:
		to = limit
	case i > 0:
		to = recs[i-1].Offset + 1
	}
	f.buf = f.buf[i:]
	return recs, to
}

// batch returns the next records below limit and the offset behind them: at most n, and
// what is there once the first has waited for linger. It waits for a first one.
func (f *feed) batch(ctx context.Context, limit int64, n int, linger time.Duration) ([]kafka.Record, int64, error) {
	for len(f.buf) == 0 {
		if _, err := f.more(ctx, nil); err != nil {
			return nil, 0, err
		}
	}
	t := time.NewTimer(linger)
	defer t.Stop()
	for len(f.buf) < n && f.buf[len(f.buf)-1].Offset < limit-1 {
		ok, err := f.more(ctx, t.C)
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			break
		}
	}
	recs, to := f.upTo(limit, n)
	return recs, to, nil
}

// whole returns all records below limit, once the log is known to reach it.
func (f *feed) whole(ctx context.Context, limit int64) ([]kafka.Record, error) {
	for len(f.buf) == 0 || f.buf[len(f.buf)-1].Offset < limit-1 {
		if _, err := f.more(ctx, nil); err != nil {
			return nil, err
		}
	}
	recs, _ := f.upTo(limit, len(f.buf))
	return recs, nil
}
