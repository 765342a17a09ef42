// Package publish holds the facts about who serves what. The publisher owns them.
package publish

import (
	"path/filepath"

	"github.com/monolith-go/monolith/events"
)

// Leader is the aggregate on which Led stands; no model can have that name.
const Leader = "@leader"

// Validate reports the rules that e breaks on the subject of aggregate, the model's
// name, as an [events.ErrInvalid].
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Named("the model", aggregate)
	_, led := e.GetBody().(*Event_Led)
	r.Check(led || aggregate != Leader, "%q cannot name a model", Leader)
	switch b := e.GetBody().(type) {
	case *Event_Planned:
		p := b.Planned
		r.Check(p.GetModelName() == aggregate, "the plan is of model %q, its subject of %q", p.GetModelName(), aggregate)
		r.Check(p.GetVersion() > 0, "a plan needs a version")
		r.Check(p.GetNumPs() > 0, "a plan needs at least one serving shard")
		r.Check(len(p.GetAssignments()) > 0, "a plan needs assignments")
		for _, a := range p.GetAssignments() {
			r.Named("an assignment's container", a.GetContainer())
			r.Check(len(a.GetSubModels()) > 0, "container %s is given no sub-model", a.GetContainer())
			for sub, path := range a.GetSubModels() {
				r.Check(filepath.IsAbs(path), "%s on %s: path %q must be absolute", sub, a.GetContainer(), path)
			}
		}
	case *Event_Withdrawn:
		r.Check(b.Withdrawn.GetModelName() == aggregate, "the withdrawal is of model %q, its subject of %q", b.Withdrawn.GetModelName(), aggregate)
	case *Event_PlanFailed:
		r.Check(b.PlanFailed.GetReason() != "", "a failed plan needs its reason")
	case *Event_Led:
		r.Check(aggregate == Leader, "who leads is said on the subject of %q, not of %q", Leader, aggregate)
		r.Check(b.Led.GetEpoch() > 0, "leadership needs its epoch")
		r.Named("who leads", b.Led.GetHolder())
	}
	return r.Err()
}
