package feed

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

func TestMain(m *testing.M) { leaks.Main(m) }

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
		"known, and more may come":        {fetch(4), fetch(5, 4), 4, math.MaxInt64, 2, 1, 5, linger/2 + linger},
		"a hole beyond where it goes on":  {fetch(6), fetch(7, 6), 4, math.MaxInt64, 2, 1, 7, linger},
		"a hole that is all of the batch": {fetch(6), fetch(7, 6), 4, 6, 2, 0, 6, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &Feed{ch: make(chan fetched, readAhead), cancel: func() {}}
				f.ch <- tc.first
				time.AfterFunc(linger/2, func() { f.ch <- tc.later })
				begin := time.Now()
				recs, to, err := f.Batch(t.Context(), tc.from, tc.limit, tc.n, linger)
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

// A batch lingers longer for records that the log was seen to have, though not for ever.
func TestABatchWaitsForWhatTheLogHas(t *testing.T) {
	const linger = time.Minute
	for name, tc := range map[string]struct {
		end      int64 // of the log, as it was seen
		after    time.Duration
		want     int
		lingered time.Duration
	}{
		"the log has no more":           {2, 3 * linger / 2, 2, linger},
		"it has more, which comes":      {4, 3 * linger / 2, 4, 3 * linger / 2},
		"it has more, which comes late": {4, 11 * linger, 2, patience * linger},
		"more came, and that was all":   {4, linger / 2, 4, linger},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &Feed{ch: make(chan fetched, readAhead), cancel: func() {}, lag: new(Lag)}
				f.lag.looked(0, tc.end)
				f.ch <- fetch(2, 0, 1)
				time.AfterFunc(tc.after, func() { f.ch <- fetch(4, 2, 3) })
				n := 4
				if tc.after < linger {
					n = 5
				}
				begin := time.Now()
				recs, to, err := f.Batch(t.Context(), 0, math.MaxInt64, n, linger)
				if err != nil || len(recs) != tc.want || to != int64(tc.want) {
					t.Errorf("%d records up to %d, %v; want %d", len(recs), to, err, tc.want)
				}
				if got := time.Since(begin); got != tc.lingered {
					t.Errorf("it took %v, want %v", got, tc.lingered)
				}
				time.Sleep(11 * linger)
			})
		})
	}
}

// What is left of a fetch is the next batch; the end of the log or of ctx ends one.
func TestBatchesInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Feed{ch: make(chan fetched, readAhead), cancel: func() {}}
		f.ch <- fetch(9, 0, 1, 2, 5, 6)
		from := int64(0)
		for i, want := range []struct {
			limit int64
			n     int
			recs  int
			to    int64
		}{{9, 2, 2, 2}, {4, 2, 1, 4}, {5, 2, 0, 5}, {9, 1, 1, 6}, {9, 4, 1, 9}} {
			recs, to, err := f.Batch(t.Context(), from, want.limit, want.n, 0)
			if err != nil || len(recs) != want.recs || to != want.to {
				t.Errorf("%d: %d records up to %d, %v; want %+v", i, len(recs), to, err, want)
			}
			from = to
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(shards.ErrMoved) })
		if _, _, err := f.Batch(ctx, from, 12, 1, time.Minute); !errors.Is(err, shards.ErrMoved) {
			t.Errorf("after the end of ctx: %v", err)
		}
		f.err = kafka.ErrOutOfRange
		close(f.ch)
		if _, _, err := f.Batch(t.Context(), from, 12, 1, time.Minute); !errors.Is(err, kafka.ErrOutOfRange) {
			t.Errorf("behind the end of the log: %v", err)
		}
	})
}

func TestFeed(t *testing.T) {
	rec := func(offsets ...int64) (f fetched) {
		for _, o := range offsets {
			f.recs, f.next = append(f.recs, kafka.Record{Offset: o}), o+1
		}
		return f
	}
	hole := func(next int64, recs ...kafka.Record) fetched { return fetched{recs: recs, next: next} }
	feedOf := func(fetches ...fetched) *Feed {
		f := &Feed{ch: make(chan fetched, len(fetches)), cancel: func() {}}
		for _, r := range fetches {
			f.ch <- r
		}
		return f
	}
	ctx := t.Context()
	for _, tc := range []struct {
		name    string
		fetches []fetched
		limit   int64
		n       int
		want    int
		to      int64
	}{
		{"as many as asked", []fetched{rec(0, 1, 2), rec(3, 4)}, math.MaxInt64, 4, 4, 4},
		{"what is there", []fetched{rec(0, 1, 2), rec(3, 4)}, math.MaxInt64, 9, 5, 5},
		{"up to a cut", []fetched{rec(0, 1, 2), rec(3, 4)}, 2, 9, 2, 2},
		{"a cut inside a hole", []fetched{rec(0, 1, 7)}, 5, 9, 2, 5},
		{"nothing before the cut", []fetched{rec(8)}, 5, 9, 0, 5},
		{"the end of a bounded partition", []fetched{rec(3, 4)}, 5, 9, 2, 5},
		{"a hole within", []fetched{rec(0, 4)}, math.MaxInt64, 2, 2, 5},
		{"a hole behind", []fetched{hole(9, rec(0, 1).recs...)}, math.MaxInt64, 9, 2, 9},
		{"a hole behind what is taken", []fetched{hole(9, rec(0, 1, 2).recs...)}, math.MaxInt64, 2, 2, 2},
		{"nothing but a hole", []fetched{hole(6)}, math.MaxInt64, 9, 0, 6},
		{"a hole up to the end of a bounded partition", []fetched{hole(6)}, 6, 9, 0, 6},
		{"a hole before records", []fetched{hole(6), rec(6, 7)}, math.MaxInt64, 9, 2, 8},
	} {
		recs, to, err := feedOf(tc.fetches...).Batch(ctx, 0, tc.limit, tc.n, time.Millisecond)
		if err != nil || len(recs) != tc.want || to != tc.to {
			t.Errorf("%s: %d records up to %d, %v; want %d up to %d", tc.name, len(recs), to, err, tc.want, tc.to)
		}
	}
	f := feedOf(rec(0, 1), rec(2, 3, 4))
	if recs, err := f.Whole(ctx, 4); err != nil || len(recs) != 4 {
		t.Error("whole:", len(recs), err)
	}
	if recs, err := feedOf(rec(0, 1), hole(4)).Whole(ctx, 4); err != nil || len(recs) != 2 {
		t.Error("whole with a hole at its end:", len(recs), err)
	}
	gone, cancel := context.WithCancelCause(ctx)
	cancel(shards.ErrMoved)
	if _, err := f.Whole(gone, 8); !errors.Is(err, shards.ErrMoved) {
		t.Error("whole after the end of its context:", err)
	}
	close(f.ch)
	f.err = kafka.ErrOutOfRange
	if _, err := f.Whole(ctx, 8); !errors.Is(err, kafka.ErrOutOfRange) {
		t.Error("whole of a broken log:", err)
	}
}

// scriptedLog is a partition's log that answers what it holds, then its error.
type scriptedLog struct {
	fetches []fetched
	err     error
	asked   []int64
}

func (l *scriptedLog) Fetch(_ context.Context, offset int64) ([]kafka.Record, int64, error) {
	l.asked = append(l.asked, offset)
	if len(l.asked) > len(l.fetches) {
		return nil, 0, l.err
	}
	f := l.fetches[len(l.asked)-1]
	return f.recs, f.next, nil
}

func (l *scriptedLog) LeaderEpoch() int32 { return l.fetches[len(l.asked)-1].leader }

// A feed goes on behind what it has read. A fetch that brings nothing moves nothing, but says that the
// log can be read; the log's error comes behind all that was read before it.
func TestAFeedReadsOn(t *testing.T) {
	led := func(f fetched, leader int32) fetched { f.leader = leader; return f }
	log := &scriptedLog{fetches: []fetched{led(fetch(2, 0, 1), 3), led(fetch(2), 4), led(fetch(5, 2), 5)}, err: kafka.ErrOutOfRange}
	well := 0
	f := New(t.Context(), log, 0, func(err error) {
		if well++; err != nil {
			t.Errorf("a fetch that worked is told as %v", err)
		}
	}, new(Lag))
	defer f.Close()
	if f.Leader() != -1 {
		t.Errorf("the leader is %d before anything was read", f.Leader())
	}
	for i, want := range []struct {
		n      int
		to     int64
		leader int32
	}{{2, 2, 3}, {1, 5, 5}} {
		recs, err := f.Whole(t.Context(), want.to)
		if err != nil || len(recs) != want.n || f.Leader() != want.leader {
			t.Errorf("%d: %d records of leader %d, %v; want %+v", i, len(recs), f.Leader(), err, want)
		}
	}
	if _, _, err := f.Batch(t.Context(), 5, 9, 1, time.Minute); !errors.Is(err, kafka.ErrOutOfRange) {
		t.Errorf("behind the end of the log: %v", err)
	}
	if want := []int64{0, 2, 2, 5}; !slices.Equal(log.asked, want) || well != 3 {
		t.Errorf("asked for %v, want %v; %d fetches are told", log.asked, want, well)
	}
}
