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
	ch     chan fetched
	err    error // set before ch is closed
	buf    []kafka.Record
	at     int64 // behind all that was read: records in buf, and holes
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// fetched is what one fetch brought, and the offset that it reached.
type fetched struct {
	recs []kafka.Record
	next int64
}

const readAhead = 2 // fetches

// newFeed reads from an offset on; told hears of each fetch that worked, with nil.
func newFeed(ctx context.Context, r *kafka.Reader, from int64, told func(error)) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{ch: make(chan fetched, readAhead), at: from, cancel: cancel}
	f.wg.Go(func() {
		defer close(f.ch)
		for at := from; ; {
			recs, next, err := r.Fetch(ctx, at)
			if err != nil {
				f.err = err
				return
			}
			told(nil)
			if next == at {
				continue
			}
			at = next
			select {
			case f.ch <- fetched{recs, next}:
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
	case got, open := <-f.ch:
		if !open {
			return false, f.err
		}
		f.buf, f.at = append(f.buf, got.recs...), got.next
		return true, nil
	case <-late:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// upTo takes what is below limit from the buffer, at most n records, and returns it
// with the offset behind it and behind the holes that follow it.
func (f *feed) upTo(limit int64, n int) (recs []kafka.Record, to int64) {
	i := 0
	for i < len(f.buf) && i < n && f.buf[i].Offset < limit {
		i++
	}
	recs = f.buf[:i:i]
	switch {
	case i == len(f.buf):
		to = min(f.at, limit)
	case f.buf[i].Offset >= limit:
		to = limit
	default:
		to = recs[i-1].Offset + 1
	}
	f.buf = f.buf[i:]
	return recs, to
}

// batch returns the next records below limit, at most n, and the offset behind them and
// behind the holes that follow them: what is there once the first has waited for linger.
// It waits until the log is known beyond from, by a record or by a hole.
func (f *feed) batch(ctx context.Context, from, limit int64, n int, linger time.Duration) ([]kafka.Record, int64, error) {
	for len(f.buf) == 0 && f.at <= from {
		if _, err := f.more(ctx, nil); err != nil {
			return nil, 0, err
		}
	}
	t := time.NewTimer(linger)
	defer t.Stop()
	for len(f.buf) < n && f.at < limit {
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
	for f.at < limit {
		if _, err := f.more(ctx, nil); err != nil {
			return nil, err
		}
	}
	recs, _ := f.upTo(limit, len(f.buf))
	return recs, nil
}
