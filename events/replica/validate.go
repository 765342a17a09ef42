// Package replica holds the facts about serving replicas. The replica-registry owns
// them; Heartbeat, which is no fact, is what they are made from.
package replica

import (
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/events"
)

// Key is the aggregate of a replica: <model>/<type>:<task>/<replica>, with <idc>:<cluster>/
// before the type where data centres are told apart.
func (x *Replica) Key() string {
	if dc := x.GetDataCenter(); dc != "" {
		return fmt.Sprintf("%s/%s/%s:%d/%d", x.GetModelName(), dc, x.GetServerType(), x.GetTask(), x.GetReplica())
	}
	return fmt.Sprintf("%s/%s:%d/%d", x.GetModelName(), x.GetServerType(), x.GetTask(), x.GetReplica())
}

// SubModel is the exported folder that the replica serves: entry, ps_{task}, dense_{task}.
func (x *Replica) SubModel() string {
	if x.GetServerType() == "entry" {
		return "entry"
	}
	return fmt.Sprintf("%s_%d", x.GetServerType(), x.GetTask())
}

// Validate reports the rules that e breaks on the subject of aggregate, a replica's
// Key, as an [events.ErrInvalid].
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Named("the replica", aggregate)
	r.Bounded(e)
	switch b := e.GetBody().(type) {
	case *Event_Registered:
		x := b.Registered.GetReplica()
		r.Check(x.Key() == aggregate, "the body is replica %q, its subject %q", x.Key(), aggregate)
		x.rules(&r)
	case *Event_StateChanged:
		r.Check(State_name[int32(b.StateChanged.GetStat())] != "", "state %d is unknown", b.StateChanged.GetStat())
	case *Event_Lost:
		r.Reason("a loss", b.Lost.GetReason())
	}
	return r.Err()
}

func (x *Replica) rules(r *events.Rules) {
	r.Named("the replica's model", x.GetModelName())
	r.Named("the replica's container", x.GetContainer())
	switch x.GetServerType() {
	case "ps", "entry", "dense":
	default:
		r.Check(false, "server type %q is none of ps, entry, dense", x.GetServerType())
	}
	r.Check(x.GetTask() >= 0, "task %d is negative", x.GetTask())
	r.Payload("the replica", 1024+events.JSONSize(x.GetModelName(),
		x.GetGrpcAddress(), x.GetGrpcAddressIpv6(), x.GetArchonAddress(), x.GetArchonAddressIpv6()))
	if dc := x.GetDataCenter(); dc != "" {
		r.Check(strings.Count(dc, ":") == 1 && !strings.ContainsRune(dc, '/') && dc == strings.ToLower(dc),
			"data center %q is not {idc}:{cluster} in lower case", dc)
	}
}

// Validate reports the rules that h breaks, as an [events.ErrInvalid].
func (h *Heartbeat) Validate() error {
	var r events.Rules
	r.Named("the heartbeat's container", h.GetContainer().GetId())
	r.Bounded(h)
	for _, x := range h.GetReplicas() {
		x.rules(&r)
		r.Check(x.GetContainer() == h.GetContainer().GetId(), "replica %s is of container %q, the heartbeat of %q", x.Key(), x.GetContainer(), h.GetContainer().GetId())
	}
	return r.Err()
}
