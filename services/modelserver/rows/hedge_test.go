package rows

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
)

// hook answers as its Handler does once before returns.
type hook struct {
	Handler
	before func(context.Context) error
}

func (h hook) Lookup(ctx context.Context, q *rowwire.LookupRequest) (*rowwire.LookupResponse, error) {
	if err := h.before(ctx); err != nil {
		return nil, err
	}
	return h.Handler.Lookup(ctx, q)
}

// A lookup that takes longer than the shard usually does is sent to another replica: whoever answers first counts,
// and the other one is given up.
func TestLookupsAreHedged(t *testing.T) {
	has := newPS(t)
	has.Version, has.Job = 1, "j"
	if err := has.Declare(nil, "user", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := has.Add("user", []table.Row{{ID: 1, Values: []float32{3, 4}}}); err != nil {
		t.Fatal(err)
	}
	w := Want{Model: "m", Serves: 1, Version: 1, Job: "j"}
	const held = time.Hour // the test's own end comes first
	until := func(let <-chan struct{}) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-let:
				return nil
			case <-ctx.Done():
				return rowwire.Errorf(rowwire.Unavailable, "given up")
			}
		}
	}
	for outcome, tc := range map[string]struct {
		second func(let func()) func(context.Context) error
		wins   int // which replica answers
	}{
		"won": {func(func()) func(context.Context) error { return func(context.Context) error { return nil } }, 1},
		"lost": {func(let func()) func(context.Context) error {
			return func(ctx context.Context) error { let(); return until(nil)(ctx) }
		}, 0},
		"failed": {func(func()) func(context.Context) error {
			return func(context.Context) error { return rowwire.Errorf(rowwire.Unavailable, "because") }
		}, -1},
	} {
		t.Run(outcome, func(t *testing.T) {
			s := asking(t, held, 0)
			let := make(chan struct{})
			first := hook{serving(has), until(let)}
			if outcome == "failed" { // then the first one fails as well, once the second has
				first.before = func(ctx context.Context) error { <-let; return rowwire.Errorf(rowwire.Unavailable, "because") }
			}
			goOn := sync.OnceFunc(func() { close(let) })
			second := tc.second(goOn)
			if outcome == "failed" {
				fails := second
				second = func(ctx context.Context) error { defer goOn(); return fails(ctx) }
			}
			all := []*endpoint{{addr: answering(t, first)}, {addr: answering(t, hook{serving(has), second})}}
			t.Cleanup(goOn)                            // a server that ends need not wait for it
			all[1].latency.took(time.Hour, time.Now()) // so that it is not the first to be asked
			s.routes.byShard.Store(&map[shardKey]*choice{{"m", 0}: {all: all, pace: &pace{p95: time.Millisecond, budget: 1}}})
			var h shardScratch
			block := runtime.Block{Table: "user", Dim: 2, IDs: []int64{1}, Rows: make([]float32, 2), Seqs: make([]uint64, 1)}
			h.split(w, 0, []runtime.Block{block}, true)
			err := s.ask(t.Context(), w, &h.asks[0])
			if tc.wins < 0 {
				if err == nil {
					t.Error("two replicas that fail answer")
				}
			} else if err != nil || h.asks[0].from != all[tc.wins] || !slices.Equal(block.Rows, []float32{3, 4}) {
				t.Errorf("%v, rows %v by replica %v", err, block.Rows, slices.Index(all, h.asks[0].from))
			}
			if got := value(t, s.metrics.hedges.WithLabelValues(outcome)); got != 1 {
				t.Errorf("%v hedges %s", got, outcome)
			}
		})
	}
}

// At most one in twenty lookups is sent twice, after however long a quiet time.
func TestHedgesAreFew(t *testing.T) {
	var p pace
	sent := 0
	for range 1000 {
		p.asked()
		if p.hedge() {
			sent++
		}
	}
	if sent < 49 || sent > 50 {
		t.Errorf("%d of 1,000 lookups are hedged", sent)
	}
	for range 10_000 {
		p.asked()
	}
	for sent = 0; p.hedge(); sent++ {
	}
	if sent != saved {
		t.Errorf("%d hedges at once, want %d", sent, saved)
	}
}

// A lookup is late when it takes longer than 95 in 100 did, of late.
func TestWhatTakesLong(t *testing.T) {
	var p pace
	for range paceEvery - 1 {
		p.answered(time.Millisecond)
	}
	if got := p.asked(); got != 0 {
		t.Errorf("after too few answers %v is long", got)
	}
	within := func(want time.Duration) {
		t.Helper()
		if got := p.asked(); got < want || got > want*9/8+time.Microsecond {
			t.Errorf("%v is long, want %v and an eighth at most", got, want)
		}
	}
	for i := range 20_000 {
		p.answered(time.Duration(i%1000) * time.Microsecond)
	}
	within(950 * time.Microsecond)
	for i := range 20_000 {
		p.answered(time.Duration(i%1000) * 50 * time.Microsecond)
	}
	within(47_500 * time.Microsecond)
	for range 20_000 {
		p.answered(24 * time.Hour)
	}
	if got := p.asked(); got < time.Minute {
		t.Errorf("%v is long where a day is usual", got)
	}
	for bucket := 1; bucket < paceBuckets; bucket++ {
		if last := paceEdge(bucket - 1); paceBucket(last) != bucket || paceBucket(last-time.Microsecond) != bucket-1 {
			t.Fatalf("%v counts in bucket %d, a microsecond less in %d; want %d", last, paceBucket(last), paceBucket(last-time.Microsecond), bucket)
		}
	}
}

// A slow replica is asked when the others have many requests out, and again once nothing was heard of it for a while.
func TestSlowReplicasAreAskedLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoutes(nil, nil)
		slow, fast := &endpoint{addr: "slow"}, &endpoint{addr: "fast"}
		key, want := shardKey{"m", 1}, exportID{3, "job"}
		r.byShard.Store(&map[shardKey]*choice{key: {all: []*endpoint{slow, fast}}})
		slow.latency.took(2*time.Millisecond, time.Now())
		fast.latency.took(100*time.Microsecond, time.Now())
		asked := func() (n int) {
			for range 10 {
				if r.pick(key, want, nil) == slow {
					n++
				}
			}
			return n
		}
		if n := asked(); n != 0 {
			t.Errorf("the slow one is asked %d times of 10", n)
		}
		fast.outstanding.Store(8)
		if n := asked(); n != 10 {
			t.Errorf("beside one with 8 requests out, the slow one is asked %d times of 10", n)
		}
		fast.outstanding.Store(0)
		time.Sleep(10 * time.Second)
		if n := asked(); n != 5 {
			t.Errorf("ten seconds later it is asked %d times of 10", n)
		}
	})
}
