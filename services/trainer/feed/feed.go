// Package feed takes a partition from its log to batches: it reads ahead, waits for what a batch
// is to hold, and knows the order in which a deterministic job learns them.
package feed

import (
	"context"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
)

// Feed reads a partition ahead of its learner.
type Feed struct {
	ch     chan fetched
	err    error // set before ch is closed
	buf    []kafka.Record
	at     int64 // behind all that was read: records in buf, and holes
	leader int32 // the leader epoch in which the last of it was read
	lag    *Lag
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// fetched is what one fetch brought, the offset that it reached, and the leader's epoch.
type fetched struct {
	recs   []kafka.Record
	next   int64
	leader int32
}

const (
	readAhead = 2 // fetches
	// A batch waits so many times linger for records that the log is known to have. On a machine that is too
	// busy to read as fast as it learns, batches would get smaller else, each sample dearer, and reading slower still.
	patience = 10
)

// Fetcher is what a partition's log answers: records from offset on, the offset behind them, and
// the epoch of the leader that gave them, -1 where there is none.
type Fetcher interface {
	Fetch(ctx context.Context, offset int64) (recs []kafka.Record, next int64, err error)
	LeaderEpoch() int32
}

// New reads from an offset on; told hears of each fetch that worked, with nil, and lag of what it
// brought.
func New(ctx context.Context, r Fetcher, from int64, told func(error), lag *Lag) *Feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &Feed{ch: make(chan fetched, readAhead), at: from, leader: -1, lag: lag, cancel: cancel}
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
			lag.fetched(recs, next)
			at = next
			select {
			case f.ch <- fetched{recs, next, r.LeaderEpoch()}:
			case <-ctx.Done():
				f.err = ctx.Err()
				return
			}
		}
	})
	return f
}

// Close ends the reading.
func (f *Feed) Close() {
	f.cancel()
	f.wg.Wait()
}

// Leader is a leader epoch after which nothing of what was returned so far was written; -1: not
// known.
func (f *Feed) Leader() int32 { return f.leader }

// more waits for another fetch; late (nil: never) ends the wait without one.
func (f *Feed) more(ctx context.Context, late <-chan time.Time) (ok bool, err error) {
	select {
	case got, open := <-f.ch:
		if !open {
			return false, f.err
		}
		f.buf, f.at, f.leader = append(f.buf, got.recs...), got.next, got.leader
		return true, nil
	case <-late:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// upTo takes what is below limit from the buffer, at most n records, and returns it
// with the offset behind it and behind the holes that follow it.
func (f *Feed) upTo(limit int64, n int) (recs []kafka.Record, to int64) {
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

// Batch returns the next records below limit, at most n, and the offset behind them and
// behind the holes that follow them: what is there once the first has waited for linger, or for some
// times that while the log has more. It waits until the log is known beyond from, by a record or by a hole.
func (f *Feed) Batch(ctx context.Context, from, limit int64, n int, linger time.Duration) ([]kafka.Record, int64, error) {
	for len(f.buf) == 0 && f.at <= from {
		if _, err := f.more(ctx, nil); err != nil {
			return nil, 0, err
		}
	}
	t := time.NewTimer(linger)
	defer t.Stop()
	for waited := 0; len(f.buf) < n && f.at < limit; {
		ok, err := f.more(ctx, t.C)
		if err != nil {
			return nil, 0, err
		}
		if ok {
			continue
		}
		if waited++; waited == patience || !f.lag.beyond(f.at) {
			break
		}
		t.Reset(linger)
	}
	recs, to := f.upTo(limit, n)
	return recs, to, nil
}

// Whole returns all records below limit, once the log is known to reach it.
func (f *Feed) Whole(ctx context.Context, limit int64) ([]kafka.Record, error) {
	for f.at < limit {
		if _, err := f.more(ctx, nil); err != nil {
			return nil, err
		}
	}
	recs, _ := f.upTo(limit, len(f.buf))
	return recs, nil
}
