package ps

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// Rows of a table with a long interval wait, all of them or those that are near what followers have, and so do the
// ranges that made them; a checkpoint and a clean end have them go, and a shard that dies with rows that wait learns
// them again.
func TestRowsThatWaitAreNeverLost(t *testing.T) {
	for _, tolerance := range []*float32{nil, proto.Float32(0.1)} {
		rowsWait(t, tolerance)
	}
}

func rowsWait(t *testing.T, tolerance *float32) {
	w := newWorld(t)
	h := &hooks{Bus: w.bus}
	w.bus = h
	cfg := w.declare(func(m *model.ModelSpec) { m.Tables[0].Sync = &model.Sync{IntervalMs: 3_600_000, Tolerance: tolerance} })
	p := w.start(cfg)
	next := int64(0)
	const step = 1. / 64
	both := func(movie int64) *rowwire.ApplyRequest {
		g := float32(step)
		if next == 0 {
			g = 1
		}
		r := pstest.Teach(0, 0, next, next+1, g, 1)
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
	if f := w.follow(); f.rows["user"][1][0] != -1-2*step || len(f.ranges) != 2 || f.ranges[1].To != 3 {
		t.Errorf("behind a checkpoint followers have %v and %v", f.rows, f.ranges)
	}
	waits(-1-2*step, 2)
	h.set(func(func() (uint64, error), []bus.DeltaDraft) (uint64, error) { return 0, bus.ErrUnavailable })
	if err := p.stop(); err != nil { // dies: nothing of what waits goes
		t.Fatal(err)
	}
	h.set(nil)
	p = w.start(cfg)
	next--
	waits(-1-3*step, 3) // nothing has waited for long in this life: it goes at once
	waits(-1-3*step, 3)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if f := w.follow(); f.rows["user"][1][0] != -1-4*step || f.ranges[len(f.ranges)-1].To != next {
		t.Errorf("behind a clean end followers have %v and %v, want record %d", f.rows, f.ranges, next-1)
	}
}
