// Package container holds the facts about agents and training tasks: who is there, at
// which addresses, with which resources. The replica-registry owns them.
package container

import "github.com/monolith-go/monolith/events"

// Validate reports the rules that e breaks on the subject of aggregate, the container's
// id, as an [events.ErrInvalid].
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Named("the container", aggregate)
	switch b := e.GetBody().(type) {
	case *Event_Reported:
		c := b.Reported.GetContainer()
		r.Check(len(c.GetProblem()) <= 1000, "the problem is %d bytes long, at most 1000 are allowed", len(c.GetProblem()))
		r.Check(len(c.GetHost()) <= 255, "the host's name is %d bytes long, at most 255 are allowed", len(c.GetHost()))
		r.Check(c.GetId() == aggregate, "the body is container %q, its subject %q", c.GetId(), aggregate)
		switch c.GetKind() {
		case "serving":
		case "training":
			r.Named("a training task's job", c.GetJob())
			r.Named("a training task's server type", c.GetServerType())
			r.Check(c.GetIndex() >= 0, "index %d is negative", c.GetIndex())
		default:
			r.Check(false, "kind %q is neither serving nor training", c.GetKind())
		}
	case *Event_ResourceReported:
		r.Check(b.ResourceReported.GetMemory() >= 0, "memory %d is negative", b.ResourceReported.GetMemory())
	case *Event_Lost:
		r.Check(b.Lost.GetReason() != "", "a loss needs its reason")
	}
	return r.Err()
}
