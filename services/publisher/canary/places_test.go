package canary

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/servers"
)

func TestPlaces(t *testing.T) {
	var now plan.Plan
	now.Planned.V = &publish.Planned{ModelName: "m", Version: 7}
	alive, told, copies := fleet.New(), servers.New(), lineage.New()
	for _, id := range []string{"serves", "failed", "loads", "copied", "waits", "gone"} {
		now.Planned.V.Assignments = append(now.Planned.V.Assignments, &publish.Assignment{Container: id, SubModels: map[string]string{"entry": "/e/entry/7"}})
		alive.Containers[id] = fleet.Container{Container: events.JSON[*container.Container]{V: &container.Container{Id: id, Host: "of " + id}}, Alive: id != "gone"}
	}
	now.Planned.V.Assignments[0].SubModels["ps_0"] = "/e/ps_0/7"
	tell := func(id, sub string, phase servers.Phase, reason string) {
		if told.Containers[id] == nil {
			told.Containers[id] = map[string]servers.Told{}
		}
		told.Containers[id][servers.VersionKey("m", sub, 9)] = servers.Told{Phase: phase, Reason: reason}
	}
	tell("serves", "entry", servers.Available, "")
	tell("serves", "ps_0", servers.Loading, "")
	tell("failed", "entry", servers.Failed, "DATA_LOSS: cut short")
	tell("loads", "entry", servers.Loading, "")
	tell("gone", "entry", servers.Available, "")
	copies.Copies[lineage.CopyKey("m", "entry", 9, "of copied")] = events.JSON[*transfer.ModelCopied]{V: &transfer.ModelCopied{}}
	if got := Places(now, told, alive, copies); got != nil {
		t.Errorf("without a canary: %v", got)
	}
	now.Canary.Declared.V = &publish.CanaryDeclared{ModelName: "m", Stable: 7, Candidate: 9}
	want := []Place{
		{"serves", "entry", true, ""},
		{"serves", "ps_0", false, "its server is loading it"},
		{"failed", "entry", false, "its server cannot load it: DATA_LOSS: cut short"},
		{"loads", "entry", false, "its server is loading it"},
		{"copied", "entry", false, "its server has not been told of it yet"},
		{"waits", "entry", false, `model-sync has not brought it to host "of waits" yet`},
		{"gone", "entry", false, "the container is not alive"},
	}
	if diff := cmp.Diff(want, Places(now, told, alive, copies)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	now.Canary.Decided.V = &publish.CanaryDecided{}
	if got := Places(now, told, alive, copies); got != nil {
		t.Errorf("after the verdict: %v", got)
	}
}
