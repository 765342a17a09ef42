// Package container holds the facts about agents and training tasks: who is there, at
// which addresses, with which resources. The replica-registry owns them.
package container

import "github.com/monolith-go/monolith/events"

// Validate reports the rules that e breaks on the subject of aggregate, the container's
// id, as an [events.ErrInvalid].
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Named("the container", aggregate)
	r.Bounded(e)
	switch b := e.GetBody().(type) {
	case *Event_Reported:
		c := b.Reported.GetContainer()
		c.rules(&r)
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
		x := b.ResourceReported
		r.Check(x.GetMemory() >= 0, "memory %d is negative", x.GetMemory())
		r.Finite("cpu", x.GetCpu())
		r.Finite("network", x.GetNetwork())
		r.Finite("work_load", x.GetWorkLoad())
	case *Event_Lost:
		r.Reason("a loss", b.Lost.GetReason())
	}
	return r.Err()
}

// rules are those of the texts that nodes are named after or made of: the resource's
// node, the one below container_service and its debug_info, which is a JSON text inside
// of another.
func (c *Container) rules(r *events.Rules) {
	for what, name := range map[string]string{"cluster": c.GetCluster(), "idc": c.GetIdc(), "psm": c.GetPsm(), "job": c.GetJob(), "server_type": c.GetServerType(), "host": c.GetHost()} {
		r.Text(what, name, events.MaxName)
	}
	r.Text("the problem", c.GetProblem(), 1000)
	layout := events.JSONSize(c.GetLayoutPath()) + events.JSONSize(c.GetLayoutFilters()...)
	r.Payload("the container", 2*layout+1024+events.JSONSize(c.GetIdc(),
		c.GetGrpcAddress(), c.GetHttpAddress(), c.GetRowsAddress(), c.GetArchonAddress(), c.GetAgentAddress()))
}
