package trainer

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/projections/lineage"
)

// TestAMachineThatFailsPausesTheJob: training waits while the machine of a shard fails a check, goes on when it
// recovers, and when another process takes the shard; each failure counts, not the first alone.
func TestAMachineThatFailsPausesTheJob(t *testing.T) {
	w := newWorld(t, 2, 2)
	w.write(50)
	tr := w.run(w.config("a", 0))
	w.learnt(0, 100)
	w.learnt(1, 100)
	of := func(e *shard.Event) uint64 {
		return w.append(events.Join(bzid, "shard", shard.Aggregate(theJob, 1)), e)
	}
	fails := func(reason string, epoch uint64) uint64 {
		return of(&shard.Event{Body: &shard.Event_MachineFailed{MachineFailed: &shard.MachineFailed{Status: shard.MachineFailed_OUT_OF_MEMORY, Reason: reason, Epoch: epoch}}})
	}
	goesOn := func(what string) {
		t.Helper()
		w.until(what, func(j lineage.Job) bool { return j.Paused.Seq == 0 })
	}
	seq := fails("no room", 1)
	w.pausedBy("a")
	if st := w.status("status", `{}`); !st.Paused || !strings.Contains(st.Reason, "shard 1") || !strings.Contains(st.Reason, "no room") {
		t.Errorf("the status is %+v", st)
	}
	if j := w.until("the pause names the failure", func(j lineage.Job) bool { return j.Paused.Seq > 0 }); j.Paused.For != seq || j.Guarded != seq {
		t.Errorf("paused %+v, guarded %d, the failure is %d", j.Paused, j.Guarded, seq)
	}
	w.write(50) // which nobody takes meanwhile
	of(&shard.Event{Body: &shard.Event_MachineRecovered{MachineRecovered: &shard.MachineRecovered{Epoch: 1}}})
	goesOn("the machine recovered")
	w.learnt(0, 200)
	w.learnt(1, 200)

	fails("again no room", 1)
	w.pausedBy("a")
	w.shards[1].crash() // and comes back elsewhere
	goesOn("another process has the shard")
	fails("a dead process's last word", 1)
	w.write(50)
	w.learnt(0, 300)
	w.learnt(1, 300)

	fails("a third time", 2)
	w.pausedBy("a")
	w.resume() // by hand, in spite of it
	w.write(50)
	w.learnt(1, 400)
	goesOn("a resumed job stays so")
	tr.stop(t)
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
}
