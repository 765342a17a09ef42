package ps

import (
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// Rows of a table with a long interval wait, and so do the ranges that made them; a checkpoint and a
// clean end have them go, and a shard that dies with rows that wait learns them again.
func TestRowsThatWaitAreNeverLost(t *testing.T) {
	w := newWorld(t)
	h := &hooks{Bus: w.bus}
	w.bus = h
	cfg := w.declare(func(m *model.ModelSpec) { m.Tables[0].Sync = &model.Sync{IntervalMs: 3_600_000} })
	p := w.start(cfg)
	next := int64(0)
	both := func(movie int64) *rowwire.ApplyRequest {
		r := pstest.Teach(0, 0, next, next+1, 1, 1)
		r.Tables = append(r.Tables, rowwire.TableGrads{Table: "movie", IDs: []int64{movie}, Grads: []float32{1, 1, 1}})
		next++
		return r
	}
	// waits teaches a user and a new movie, and looks at followers once that has gone.
	movie := int64(0)
	waits := func(user float32, said int) {
		t.Helper()
		movie++
		p.teach(both(movie))
		wait.For(t, "the movie is published", func() bool { return len(w.follow().rows["movie"][movie]) > 0 })
		f := w.follow()
		if got := f.rows["user"][1]; got[0] != user || len(f.ranges) != said {
			t.Errorf("behind record %d followers have %v of the user and %d ranges, want %v and %d", next-1, got, len(f.ranges), user, said)
		}
	}
	waits(-1, 1)
	waits(-1, 1)
	waits(-1, 1)
	w.save(w.checkpoint(1, 1, 0))
	if f := w.follow(); f.rows["user"][1][0] != -3 || len(f.ranges) != 2 || f.ranges[1].To != 3 {
		t.Errorf("behind a checkpoint followers have %v and %v", f.rows, f.ranges)
	}
	waits(-3, 2)
	h.set(func(func() (uint64, error), []bus.DeltaDraft) (uint64, error) { return 0, bus.ErrUnavailable })
	if err := p.stop(); err != nil { // dies: nothing of what waits goes
		t.Fatal(err)
	}
	h.set(nil)
	p = w.start(cfg)
	next--
	waits(-4, 3) // nothing has waited for long in this life: it goes at once
	waits(-4, 3)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if f := w.follow(); f.rows["user"][1][0] != -5 || f.ranges[len(f.ranges)-1].To != next {
		t.Errorf("behind a clean end followers have %v and %v, want record %d", f.rows, f.ranges, next-1)
	}
}
