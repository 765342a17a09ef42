package servables

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
)

// turn waits, before a server that answers for a shard reads the planned version of it, until the replicas
// that come before it in the plan have that version or are lost. So one replica of a shard reads at a time
// and the others answer at their usual pace. It waits Turn at most for each of them in their order, and not
// again for one that was waited for in vain: one that cannot load a version holds up nobody for ever, nor
// has it all behind it read at once.
func (s *keeper) turn(ctx context.Context, v *version) error {
	if s.Turn <= 0 || v.shard < 0 || !s.manager.answers(v.name) {
		return nil
	}
	patience := time.NewTimer(s.Turn)
	defer patience.Stop()
	inVain := map[int]bool{}
	for next := -1; ; {
		planned, moved := s.Plan.Changed(), s.Fleet.Changed()
		first, ok := s.before(v, inVain)
		if !ok {
			return nil
		}
		if first != next {
			s.Log.Info("waiting for a replica before this one", "model", v.name, "version", v.number, "replica", first)
			next = first
			patience.Reset(s.Turn)
		}
		select {
		case <-planned:
		case <-moved:
		case <-patience.C:
			s.Log.Warn("a replica before this one does not get the version; it is waited for no longer", "model", v.name, "version", v.number, "replica", next, "waited", s.Turn)
			inVain[next] = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// before is the first of the replicas of v's shard that have a lower number in the plan, live, have neither
// v nor what the plan has asked for since, and are not waited for in vain; !ok: there is none.
func (s *keeper) before(v *version, inVain map[int]bool) (first int, ok bool) {
	p := s.planned(v.model)
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
			if !planned || turn >= own || inVain[turn] || !x.Alive || r.GetModelName() != v.model || r.GetServerType() != "ps" || int(r.GetTask()) != v.shard {
				continue
			}
			has := r.GetVersion() == v.number || r.GetVersion() == p.GetVersion()
			if (!has || r.GetStat() != replica.State_AVAILABLE) && (!ok || turn < first) {
				first, ok = turn, true
			}
		}
	})
	return first, ok
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
