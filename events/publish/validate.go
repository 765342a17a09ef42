// Package publish holds the facts about who serves what. The publisher owns them.
package publish

import (
	"fmt"
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
	r.Bounded(e)
	_, led := e.GetBody().(*Event_Led)
	r.Check(led || aggregate != Leader, "%q cannot name a model", Leader)
	switch b := e.GetBody().(type) {
	case *Event_Planned:
		p := b.Planned
		r.Check(p.GetModelName() == aggregate, "the plan is of model %q, its subject of %q", p.GetModelName(), aggregate)
		r.Check(p.GetVersion() > 0, "a plan needs a version")
		r.Check(p.GetNumPs() > 0, "a plan needs at least one serving shard")
		r.Check(len(p.GetAssignments()) > 0, "a plan needs assignments")
		r.Text("the job", p.GetJob(), events.MaxName)
		sizes := map[[2]uint32]int{} // of the nodes, which those of one shard and replica share
		for _, a := range p.GetAssignments() {
			r.Named("an assignment's container", a.GetContainer())
			r.Check(len(a.GetSubModels()) > 0, "container %s is given no sub-model", a.GetContainer())
			for sub, path := range a.GetSubModels() {
				r.Check(filepath.IsAbs(path), "%s on %s: path %q must be absolute", sub, a.GetContainer(), path)
				sizes[[2]uint32{a.GetShard(), a.GetReplica()}] += events.JSONSize(sub, path)
			}
		}
		for at, size := range sizes {
			r.Payload(fmt.Sprintf("what shard %d, replica %d is given", at[0], at[1]), size+1024+events.JSONSize(p.GetModelName()))
		}
	case *Event_Withdrawn:
		r.Check(b.Withdrawn.GetModelName() == aggregate, "the withdrawal is of model %q, its subject of %q", b.Withdrawn.GetModelName(), aggregate)
	case *Event_PlanFailed:
		r.Reason("a failed plan", b.PlanFailed.GetReason())
	case *Event_CanaryDeclared:
		r.Check(b.CanaryDeclared.GetModelName() == aggregate, "the canary is of model %q, its subject of %q", b.CanaryDeclared.GetModelName(), aggregate)
		declared(&r, b.CanaryDeclared)
	case *Event_CanaryDecided:
		r.Check(b.CanaryDecided.GetModelName() == aggregate, "the canary is of model %q, its subject of %q", b.CanaryDecided.GetModelName(), aggregate)
		decided(&r, b.CanaryDecided)
	case *Event_Led:
		r.Check(aggregate == Leader, "who leads is said on the subject of %q, not of %q", Leader, aggregate)
		r.Check(b.Led.GetEpoch() > 0, "leadership needs its epoch")
		r.Named("who leads", b.Led.GetHolder())
	}
	return r.Err()
}
