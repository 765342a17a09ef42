package trainer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/internal/attempt"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

// bounded has the job end at an offset of its only partition.
func (l *learner) bounded(w *world, end int64) {
	b := l.s.started()
	b.Partitions, b.Ends = 1, map[int32]int64{0: end}
	w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: b}})
	w.caughtUp(l.s)
	l.turns.Ends = []int64{end}
}

// withPipeline sets it as a flag would: 0 is meant.
func withPipeline(n int) func(*Config) {
	return func(c *Config) {
		*c = c.withDefaults()
		c.Pipeline, c.registered = n, true
	}
}

// Rows are looked up while the step before is learnt, and no sooner; without the look-up ahead, and
// in deterministic mode, once it was applied.
func TestHowFarAheadRowsAreLookedUp(t *testing.T) {
	const batches = 6
	for _, tc := range []struct {
		pipeline int
		inOrder  bool
		ahead    int64
	}{{1, false, 1}, {0, false, 0}, {1, true, 0}, {0, true, 0}} {
		t.Run(fmt.Sprintf("pipeline %d, deterministic %v", tc.pipeline, tc.inOrder), func(t *testing.T) {
			w := newWorld(t, 1, 1)
			for range batches {
				w.write(16)
			}
			l := w.learning(func(c *Config) { withPipeline(tc.pipeline)(c); c.Deterministic = tc.inOrder })
			l.bounded(w, 16*batches)
			var lookups, applied atomic.Int64
			came := make(chan struct{}, batches)
			w.shards[0].asked = func(*rowwire.LookupRequest) {
				if at, n := lookups.Add(1), applied.Load(); at > n+1+tc.ahead {
					t.Errorf("look-up %d after %d steps were applied", at, n)
				}
				came <- struct{}{}
			}
			w.shards[0].took = func(*rowwire.ApplyRequest) { // its answer waits
				want := min(batches, applied.Load()+1+tc.ahead)
				for lookups.Load() < want {
					select {
					case <-came:
					case <-t.Context().Done():
						return
					}
				}
				if n := lookups.Load(); n != want {
					t.Errorf("%d look-ups while step %d is applied, want %d", n, applied.Load(), want)
				}
				applied.Add(1)
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
			defer cancel()
			if err := l.learnFrom(ctx, ctx, shards.Position{Level: true}); !errors.Is(err, errDone) {
				t.Fatal(err)
			}
			if lookups.Load() != batches || applied.Load() != batches {
				t.Errorf("%d look-ups, %d steps applied", lookups.Load(), applied.Load())
			}
		})
	}
}

// A step that is refused ends the ring: of those behind it, which were decoded and looked up, nothing
// reaches a shard.
func TestARefusalEndsTheRing(t *testing.T) {
	for _, code := range []rowwire.Code{rowwire.Gap, rowwire.Overlap, rowwire.Fenced} {
		w := newWorld(t, 1, 2)
		w.write(160)
		l := w.learning(withPipeline(1))
		l.bounded(w, 160)
		ahead := make(chan struct{}, 20)
		w.shards[0].asked = func(*rowwire.LookupRequest) { ahead <- struct{}{} }
		w.shards[0].refuses = func(r *rowwire.ApplyRequest) rowwire.Code {
			if r.From != 32 {
				return 0
			}
			for range 4 { // of the step behind, too
				<-ahead
			}
			return code
		}
		err := l.learnFrom(t.Context(), t.Context(), shards.Position{})
		if attempt.Refusal(err) != code {
			t.Errorf("%v: %v", code, err)
		}
		for i, s := range w.shards {
			for _, r := range s.now.ranges {
				if r.From > 48 || i == 0 && r.From > 32 {
					t.Errorf("%v: shard %d learnt %+v", code, i, r)
				}
			}
		}
	}
}
