package trainer

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
)

// fetch is what one fetch brings: the records at these offsets, and the offset behind.
func fetch(next int64, offsets ...int64) fetched {
	f := fetched{next: next}
	for _, o := range offsets {
		f.recs = append(f.recs, kafka.Record{Offset: o})
	}
	return f
}

// A batch is handed over as soon as it is full or at its limit; it lingers otherwise, from the
// first record on.
func TestHowLongABatchLingers(t *testing.T) {
	const linger = time.Minute
	for name, tc := range map[string]struct {
		first    fetched
		later    fetched // after half the linger
		from     int64
		limit    int64
		n        int
		want     int
		to       int64
		lingered time.Duration
	}{
		"full":                            {fetch(3, 0, 1, 2), fetch(4, 3), 0, math.MaxInt64, 3, 3, 3, 0},
		"more than full":                  {fetch(4, 0, 1, 2, 3), fetch(5, 4), 0, math.MaxInt64, 3, 3, 3, 0},
		"at its limit":                    {fetch(3, 0, 1, 2), fetch(4, 3), 0, 3, 9, 3, 3, 0},
		"beyond its limit":                {fetch(4, 0, 1, 3), fetch(5, 4), 0, 3, 9, 2, 3, 0},
		"the next one at its limit":       {fetch(6, 0, 1, 5), fetch(7, 6), 0, 5, 9, 2, 5, 0},
		"a hole up to its limit":          {fetch(3, 0), fetch(4, 3), 0, 3, 9, 1, 3, 0},
		"neither, and more comes":         {fetch(2, 0, 1), fetch(4, 2, 3), 0, math.MaxInt64, 9, 4, 4, linger},
		"full later":                      {fetch(2, 0, 1), fetch(3, 2), 0, math.MaxInt64, 3, 3, 3, linger / 2},
		"at its limit later":              {fetch(2, 0, 1), fetch(3, 2), 0, 3, 9, 3, 3, linger / 2},
		"known from elsewhere":            {fetch(4), fetch(5, 4), 4, math.MaxInt64, 1, 1, 5, linger / 2},
		"a hole beyond where it goes on":  {fetch(6), fetch(7, 6), 4, math.MaxInt64, 2, 1, 7, linger},
		"a hole that is all of the batch": {fetch(6), fetch(7, 6), 4, 6, 2, 0, 6, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{ch: make(chan fetched, readAhead), cancel: func() {}}
				f.ch <- tc.first
				time.AfterFunc(linger/2, func() { f.ch <- tc.later })
				begin := time.Now()
				recs, to, err := f.batch(t.Context(), tc.from, tc.limit, tc.n, linger)
				if err != nil || len(recs) != tc.want || to != tc.to {
					t.Errorf("%d records up to %d, %v; want %d up to %d", len(recs), to, err, tc.want, tc.to)
				}
				if got := time.Since(begin); got != tc.lingered {
					t.Errorf("it took %v, want %v", got, tc.lingered)
				}
				time.Sleep(linger)
			})
		})
	}
}

// What is left of a fetch is the next batch; the end of the log or of ctx ends one.
func TestBatchesInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{ch: make(chan fetched, readAhead), cancel: func() {}}
		f.ch <- fetch(9, 0, 1, 2, 5, 6)
		from := int64(0)
		for i, want := range []struct {
			limit int64
			n     int
			recs  int
			to    int64
		}{{9, 2, 2, 2}, {4, 2, 1, 4}, {5, 2, 0, 5}, {9, 1, 1, 6}, {9, 4, 1, 9}} {
			recs, to, err := f.batch(t.Context(), from, want.limit, want.n, 0)
			if err != nil || len(recs) != want.recs || to != want.to {
				t.Errorf("%d: %d records up to %d, %v; want %+v", i, len(recs), to, err, want)
			}
			from = to
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errMoved) })
		if _, _, err := f.batch(ctx, from, 12, 1, time.Minute); !errors.Is(err, errMoved) {
			t.Errorf("after the end of ctx: %v", err)
		}
		f.err = kafka.ErrOutOfRange
		close(f.ch)
		if _, _, err := f.batch(t.Context(), from, 12, 1, time.Minute); !errors.Is(err, kafka.ErrOutOfRange) {
			t.Errorf("behind the end of the log: %v", err)
		}
	})
}
