package publisher

import (
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/publish"
)

// describe says what a draft of this role is, for logs and metrics.
func describe(d bus.Draft) (outcome, detail string) {
	e, _ := d.Event.(*publish.Event)
	switch b := e.GetBody().(type) {
	case *publish.Event_Planned:
		return "planned", fmt.Sprintf("version %d on %d containers", b.Planned.GetVersion(), containers(b.Planned))
	case *publish.Event_PlanFailed:
		return "failed", b.PlanFailed.GetReason()
	case *publish.Event_Led:
		return "led", fmt.Sprintf("epoch %d", b.Led.GetEpoch())
	case *publish.Event_CanaryDeclared:
		return "canary", fmt.Sprintf("version %d beside version %d", b.CanaryDeclared.GetCandidate(), b.CanaryDeclared.GetStable())
	case *publish.Event_CanaryDecided:
		return strings.ToLower(b.CanaryDecided.GetVerdict().String()), b.CanaryDecided.GetReason()
	case *publish.Event_Withdrawn:
		return "withdrawn", b.Withdrawn.GetReason()
	}
	return "unknown", ""
}

func containers(p *publish.Planned) int {
	ids := map[string]bool{}
	for _, a := range p.GetAssignments() {
		ids[a.GetContainer()] = true
	}
	return len(ids)
}
