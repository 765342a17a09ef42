package servables

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
)

// turn waits, before a server that answers for a shard reads the planned version of it, until the replicas
// that come before it in the plan have that version or are lost. So one replica of a shard reads at a time
// and the others answer at their usual pace. It waits Turn at most for the next of them: one that cannot
// load a version holds up nobody for ever.
func (s *keeper) turn(ctx context.Context, v *version) error {
	if s.Turn <= 0 || v.shard < 0 || !s.manager.answers(v.name) {
		return nil
	}
	patience := time.NewTimer(s.Turn)
	defer patience.Stop()
	for left := -1; ; {
		planned, moved := s.Plan.Changed(), s.Fleet.Changed()
		before := s.before(v)
		if before == 0 {
			return nil
		}
		if before != left {
			s.Log.Info("waiting for the replicas before this one", "model", v.name, "version", v.number, "replicas", before)
			left = before
			patience.Reset(s.Turn)
		}
		select {
		case <-planned:
		case <-moved:
		case <-patience.C:
			s.Log.Warn("a replica before this one does not get the version; going on", "model", v.name, "version", v.number, "replicas", before, "waited", s.Turn)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// before is how many replicas of v's shard have a lower number in the plan that asks for v, live, and
// do not have it yet.
func (s *keeper) before(v *version) (n int) {
	p := s.planned(v.model)
	if p.GetVersion() != v.number {
		return 0
	}
	own, turns := -1, map[string]int{} // by container
	for _, a := range p.GetAssignments() {
		if a.GetSubModels()[v.sub] == "" {
			continue
		}
		turns[a.GetContainer()] = int(a.GetReplica())
		if a.GetContainer() == s.Container {
			own = int(a.GetReplica())
		}
	}
	s.Fleet.Read(func(st fleet.State) {
		for _, x := range st.Replicas {
			r := x.Replica.V
			turn, planned := turns[r.GetContainer()]
			if !planned || turn >= own || !x.Alive || r.GetModelName() != v.model || r.GetServerType() != "ps" || int(r.GetTask()) != v.shard {
				continue
			}
			if r.GetVersion() != v.number || r.GetStat() != replica.State_AVAILABLE {
				n++
			}
		}
	})
	return n
}

// answers says whether a version of a configured name does.
func (s *Manager) answers(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.models[name] {
		if v.state == stateAvailable {
			return true
		}
	}
	return false
}
