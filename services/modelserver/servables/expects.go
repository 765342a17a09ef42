package servables

import (
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/plan"
)

// expects says whether a model is to be served here, though nobody has configured it yet:
// this process may have just taken the place of one that served it. Until the views have
// caught up any model may be.
func (s *keeper) expects(name string) (yes bool) {
	select {
	case <-s.Ready:
	default:
		return true
	}
	model, sub, shard, err := s.manager.split(name)
	if err != nil {
		return false
	}
	s.Plan.Read(func(st plan.State) {
		for _, a := range st.Plans[model].Planned.V.GetAssignments() {
			yes = yes || a.GetContainer() == s.Container && a.GetSubModels()[sub] != ""
		}
	})
	kind, task := "entry", 0
	if shard >= 0 {
		kind, task = "ps", shard
	}
	s.Fleet.Read(func(st fleet.State) {
		for _, x := range st.Replicas {
			p := x.Replica.V
			yes = yes || x.Alive && p.GetContainer() == s.Container && p.GetModelName() == model && p.GetServerType() == kind && int(p.GetTask()) == task
		}
	})
	return yes
}
