package ps

import (
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// expiring declares a counting model whose users expire, and teaches 100 of them at unix.
func expiring(w *world, days uint32, unix int64) (*proc, Config) {
	cfg := w.declare(func(m *model.ModelSpec) { m.Tables[0].Expire = &model.Expire{Days: days} })
	p := w.start(cfg)
	for i := range int64(100) {
		p.teach(pstest.OnDay(unix, i, i+1))
	}
	return p, cfg
}

// swept runs expiry until it has nothing left to do, and returns what it removed.
func (p *proc) swept() (removed int) {
	p.t.Helper()
	for { // a step looks through all of so small a table
		n := p.st.Sweep()
		removed += n
		if n == 0 {
			return removed
		}
	}
}

// clock is the record time of the users, as a checkpoint that no fact names has it.
func (p *proc) clock() int64 {
	p.t.Helper()
	p.cuts++
	saved := p.readShard(p.checkpoint(1, 1000+p.cuts, 0), 0)
	at := slices.IndexFunc(saved.Manifest.Tables, func(t checkpoint.TableInfo) bool { return t.Name == "user" })
	return int64(saved.Manifest.Tables[at].Clock)
}

// TestARecordFromTheFutureMovesExpiryByOneStep: the clock moves on by the bound and no
// further, the record's own rows carry no later time, and a restart finds it the same.
func TestARecordFromTheFutureMovesExpiryByOneStep(t *testing.T) {
	w := newWorld(t)
	const then = 1000 * day
	p, cfg := expiring(w, 30, then)
	p.teach(pstest.OnDay(then+31*day, 100, 1000))
	if n := p.swept(); n != 0 || len(p.table("user")) != 101 {
		t.Errorf("one record from the future removed %d rows, %d are left of 101", n, len(p.table("user")))
	}
	if got := p.clock(); got != then+day {
		t.Errorf("the clock is %d days ahead, the bound is one", (got-then)/day)
	}
	w.save(w.checkpoint(1, 1, 0))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if p = w.start(cfg); p.clock() != then+day {
		t.Errorf("after a restart the clock is %d days ahead", (p.clock()-then)/day)
	}
	for day1 := int64(2); day1 <= 30; day1++ { // what goes on from there is ordinary life
		p.teach(pstest.OnDay(then+day1*day, 99+day1, 1000))
	}
	p.swept()
	if rows := p.table("user"); len(rows) != 1 || rows[1000] == nil {
		t.Errorf("%d rows are left after 30 days without an update, want row 1000 alone", len(rows))
	}
}

// TestAnAssignmentLeavesTheClockAlone: a job that learns records of ten days ago keeps the
// rows it has, whatever is set by hand today, over a restart too.
func TestAnAssignmentLeavesTheClockAlone(t *testing.T) {
	w := newWorld(t)
	then := time.Now().Unix() - 10*day
	p, cfg := expiring(w, 7, then)
	must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, pstest.Set("a", []int64{5000}, 1, 2))
	if n := p.swept(); n != 0 || p.clock() != then {
		t.Errorf("an assignment removed %d rows and moved the clock by %d s", n, p.clock()-then)
	}
	for _, saved := range []bool{false, true} { // read again from its delta, and from a checkpoint
		if saved {
			w.save(w.checkpoint(1, 1, 0))
		}
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
		p = w.start(cfg)
		if saved {
			p.teach(pstest.OnDay(then, 100, 1))
			if p.swept(); p.clock() != then || len(p.table("user")) != 101 {
				t.Errorf("from the checkpoint: the clock moved by %d s, %d rows are left of 101", p.clock()-then, len(p.table("user")))
			}
		} else if p.clock() != 0 || len(p.table("user")) != 1 {
			t.Errorf("from the delta: the clock is %d, %d rows, want 0 and the assigned one", p.clock(), len(p.table("user")))
		}
		if !saved { // learn them again
			for i := range int64(100) {
				p.teach(pstest.OnDay(then, i, i+1))
			}
		}
	}
}

// TestAssignedRowsLiveAsLongAsLearntOnes: one is as old as the newest record is.
func TestAssignedRowsLiveAsLongAsLearntOnes(t *testing.T) {
	w := newWorld(t)
	const then = 1000 * day
	p, _ := expiring(w, 2, then)
	must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, pstest.Set("a", []int64{5000}, 1, 2))
	p.teach(pstest.OnDay(then+day, 100, 1))
	p.swept()
	if len(p.table("user")) != 101 {
		t.Fatalf("%d rows of 101 after a day", len(p.table("user")))
	}
	p.teach(pstest.OnDay(then+2*day, 101, 1))
	p.swept()
	if rows := p.table("user"); len(rows) != 1 {
		t.Errorf("%d rows are left after two days, want the one learnt since", len(rows))
	}
}
