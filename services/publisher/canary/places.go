package canary

import (
	"fmt"
	"maps"
	"slices"

	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/servers"
)

// Place is where a part of a candidate is to be served.
type Place struct {
	Container string `json:"container"`
	SubModel  string `json:"sub_model"`
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"` // what keeps it from that
}

// Places are those of the canary of a plan that runs: one for each sub-model of each container.
func Places(now plan.Plan, told servers.State, alive fleet.State, copies lineage.State) (places []Place) {
	candidate := now.Candidate()
	if candidate == 0 {
		return nil
	}
	name := now.Planned.V.GetModelName()
	for _, a := range now.Planned.V.GetAssignments() {
		for _, sub := range slices.Sorted(maps.Keys(a.GetSubModels())) {
			p := Place{Container: a.GetContainer(), SubModel: sub}
			c := alive.Containers[a.GetContainer()]
			host := c.Container.V.GetHost()
			last, given := told.Containers[a.GetContainer()][servers.VersionKey(name, sub, candidate)]
			_, copied := copies.Copies[lineage.CopyKey(name, sub, candidate, host)]
			switch {
			case !c.Alive:
				p.Reason = "the container is not alive"
			case last.Phase == servers.Available:
				p.Available = true
			case given && last.Phase == servers.Failed:
				p.Reason = "its server cannot load it: " + last.Reason
			case given:
				p.Reason = "its server is loading it"
			case copied:
				p.Reason = "its server has not been told of it yet"
			default:
				p.Reason = fmt.Sprintf("model-sync has not brought it to host %q yet", host)
			}
			places = append(places, p)
		}
	}
	return places
}
