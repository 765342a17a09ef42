// Package replica holds the facts about serving replicas. The replica-registry owns
// them; Heartbeat, which is no fact, is what they are made from.
package replica

import (
	"fmt"
	"strconv"
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

// SubModel is the exported folder that the replica serves.
func (x *Replica) SubModel() string { return SubModel(x.GetServerType(), x.GetTask()) }

// SubModel is the exported folder of a task: ps_{task}, dense_{task}, or what the server type is called.
func SubModel(serverType string, task int32) string {
	if serverType == "ps" || serverType == "dense" {
		return serverType + "_" + strconv.Itoa(int(task))
	}
	return serverType
}

// TaskOf is what serves a sub-model: entry is entry 0, ps_3 is ps 3, and whatever else is a server
// type of its own, of task 0. False: no replica can have that name, which keys and nodes put in front
// of a colon.
func TaskOf(sub string) (serverType string, task int32, ok bool) {
	kind, digits, numbered := strings.Cut(sub, "_")
	switch n, err := strconv.ParseInt(digits, 10, 32); {
	case (kind == "ps" || kind == "dense") && numbered && err == nil && n >= 0 && strconv.FormatInt(n, 10) == digits:
		return kind, int32(n), true
	case sub == "" || sub == "ps" || strings.ContainsAny(sub, ":/"):
		return "", 0, false
	}
	return sub, 0, true
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
	switch kind := x.GetServerType(); kind {
	case "ps", "entry", "dense":
	default:
		of, task, ok := TaskOf(kind)
		r.Check(ok && of == kind && task == 0, "server type %q is none of ps, entry and dense, and no sub-graph's name", kind)
		r.Check(x.GetTask() == 0, "sub-graph %q is task %d: only ps and dense have several", kind, x.GetTask())
		r.Text("the replica's server type", kind, events.MaxName)
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
