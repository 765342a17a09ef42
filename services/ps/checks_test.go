package ps

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/compat/resources"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// TestMachineChecks: what a check finds becomes a fact when it changes, checks go on after the first failure,
// others' facts do not keep it from being said, and another epoch hears of it anew.
func TestMachineChecks(t *testing.T) {
	w := newWorld(t)
	ill := filepath.Join(t.TempDir(), "ill")
	cfg := w.config()
	cfg.Health.Every, cfg.Health.Memory = time.Second, 0.5
	cfg.Health.Command = `test "$MONOLITH_SHARD" = 0 && test ! -e ` + ill
	var used atomic.Int64
	run := func() (*Server, *proc) {
		s := w.server(cfg)
		s.memory = func() (resources.Memory, error) {
			return resources.Memory{Total: 100 << 20, Available: 100<<20 - used.Load()<<20}, nil
		}
		return s, w.run(s)
	}
	s, p := run()
	machine := func(what string, ok func(fleet.MachineFailure) bool) (m fleet.MachineFailure) {
		t.Helper()
		wait.For(t, what, func() bool {
			s.fleet.Read(func(f fleet.State) { m = f.Shards[job][0].Machine })
			return ok(m)
		})
		return m
	}
	status := func(want shard.MachineFailed_Status) func(fleet.MachineFailure) bool {
		return func(m fleet.MachineFailure) bool { return m.Seq > 0 && m.Status == want.String() }
	}
	well := func(m fleet.MachineFailure) bool { return m.Seq == 0 }
	used.Store(60)
	first := machine("memory is used up", status(shard.MachineFailed_OUT_OF_MEMORY))
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1)) // the shard still works
	used.Store(10)
	machine("memory is there again", well)
	w.append("shard", shard.Aggregate(job, 0), &shard.Event{Body: &shard.Event_HealthFailed{HealthFailed: &shard.HealthFailed{Reason: "says somebody else"}}})
	if err := os.WriteFile(ill, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	second := machine("the command fails", status(shard.MachineFailed_CHECK_FAILED))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	s, p = run()
	third := machine("the next process finds it as well", status(shard.MachineFailed_CHECK_FAILED))
	if second.Seq <= first.Seq || third.Seq <= second.Seq {
		t.Errorf("failures at %d, %d, %d", first.Seq, second.Seq, third.Seq)
	}
	if err := os.Remove(ill); err != nil {
		t.Fatal(err)
	}
	machine("the command passes again", well)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	r, err := w.bus.Log().Get(soon(t), lastOf(t, w))
	if err != nil || r.Subject != events.Join(bzid, "shard", shard.Aggregate(job, 0)) || r.Event.(*shard.Event).GetStopped() == nil {
		t.Errorf("the last fact is %v, %v; want the clean stop", r, err)
	}
}
