package replicaregistry

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
)

// maxReplicas bounds one container's, so that all of them are lost in one atomic append.
const maxReplicas = 900

// contest is a replica that a container reports while another live one holds it.
type contest struct{ key, holder string }

func containerFact(bzid, id string, expect uint64, e *container.Event) bus.Draft {
	return bus.Draft{Subject: container.Subject(bzid, id), Event: e, Expect: expect}
}

func replicaFact(bzid, key string, expect uint64, e *replica.Event) bus.Draft {
	return bus.Draft{Subject: replica.Subject(bzid, key), Event: e, Expect: expect}
}

// check refuses a heartbeat that no append could follow from.
func check(hb *replica.Heartbeat) *bus.CommandError {
	c := hb.GetContainer()
	if c == nil {
		return bus.Refuse(bus.CodeInvalid, "container is missing: send %s", heartbeatExample)
	}
	dc := ""
	if c.GetDcAware() && len(hb.GetReplicas()) > 0 {
		if c.GetIdc() == "" || c.GetCluster() == "" || strings.ContainsAny(c.GetIdc()+c.GetCluster(), ":/") {
			return bus.Refuse(bus.CodeInvalid, "container %q tells data centres apart, but its idc %q and cluster %q make no {idc}:{cluster}: give both, without colons and slashes", c.GetId(), c.GetIdc(), c.GetCluster())
		}
		dc = strings.ToLower(c.GetIdc() + ":" + c.GetCluster())
	}
	for _, r := range hb.GetReplicas() {
		r.DataCenter = dc
		if r.GetContainer() == "" {
			r.Container = c.GetId()
		}
		if strings.Contains(r.GetModelName(), "/") {
			return bus.Refuse(bus.CodeInvalid, "model %q of a replica holds a slash: name it as it was loaded", r.GetModelName())
		}
		if r.GetReplica() < 0 {
			return bus.Refuse(bus.CodeInvalid, "replica %s is negative: count from 0", r.Key())
		}
	}
	if err := hb.Validate(); err != nil {
		return bus.Refuse(bus.CodeInvalid, "%v", err)
	}
	for _, e := range []*container.Event{
		{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}},
		{Body: &container.Event_ResourceReported{ResourceReported: hb.GetResource()}},
	} {
		if err := e.Validate(c.GetId()); err != nil {
			return bus.Refuse(bus.CodeInvalid, "%v", err)
		}
	}
	if n := len(hb.GetReplicas()); n > maxReplicas {
		return bus.Refuse(bus.CodeInvalid, "%d replicas in one heartbeat: spread them over containers of at most %d", n, maxReplicas)
	}
	seen := map[string]bool{}
	for _, r := range hb.GetReplicas() {
		if seen[r.Key()] {
			return bus.Refuse(bus.CodeInvalid, "replica %s is named twice: send each once", r.Key())
		}
		seen[r.Key()] = true
		if err := (&replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}).Validate(r.Key()); err != nil {
			return bus.Refuse(bus.CodeInvalid, "%v", err)
		}
	}
	return nil
}

// decideHeartbeat drafts what a checked heartbeat changes in f: nothing, mostly. A
// replica that another live container holds stays there, and is returned as a contest;
// it changes hands when its holder lets go.
func decideHeartbeat(bzid string, f fleet.State, hb *replica.Heartbeat) (drafts []bus.Draft, contests []contest) {
	id := hb.GetContainer().GetId()
	if hb.GetLeaving() {
		return decideLost(bzid, f, id, &container.Lost{Reason: "the container left", Left: true}), nil
	}
	was := f.Containers[id]
	fresh := !was.Alive
	if fresh || !proto.Equal(was.Container.V, hb.GetContainer()) {
		drafts = append(drafts, containerFact(bzid, id, was.Seq, &container.Event{
			Body: &container.Event_Reported{Reported: &container.Reported{Container: hb.GetContainer()}}}))
	}
	if now := hb.GetResource(); now != nil && (fresh || was.Resource.V == nil || moved(was.Resource.V, now)) {
		drafts = append(drafts, containerFact(bzid, id, was.Seq, &container.Event{
			Body: &container.Event_ResourceReported{ResourceReported: now}}))
	}

	reported := map[string]bool{}
	for _, now := range sorted(hb.GetReplicas()) {
		key := now.Key()
		reported[key] = true
		old := f.Replicas[key]
		holder := old.Replica.V.GetContainer()
		switch {
		case old.Alive && holder != id && f.Containers[holder].Alive:
			contests = append(contests, contest{key, holder})
		case !old.Alive || !sameButState(old.Replica.V, now):
			drafts = append(drafts, replicaFact(bzid, key, old.Seq, &replica.Event{
				Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: now}}}))
		case old.Replica.V.GetStat() != now.GetStat() || old.Replica.V.GetVersion() != now.GetVersion():
			drafts = append(drafts, replicaFact(bzid, key, old.Seq, &replica.Event{
				Body: &replica.Event_StateChanged{StateChanged: &replica.StateChanged{Stat: now.GetStat(), Version: now.GetVersion()}}}))
		}
	}
	for _, key := range held(f, id) {
		if !reported[key] {
			drafts = append(drafts, lostReplica(bzid, f, key, fmt.Sprintf("container %s no longer serves it", id)))
		}
	}
	return drafts, contests
}

// decideLost drafts the end of a container and of every replica it holds, for one
// atomic append; nothing when both have ended before.
func decideLost(bzid string, f fleet.State, id string, why *container.Lost) []bus.Draft {
	var drafts []bus.Draft
	for _, key := range held(f, id) {
		drafts = append(drafts, lostReplica(bzid, f, key, why.GetReason()))
	}
	if c := f.Containers[id]; c.Alive {
		drafts = append(drafts, containerFact(bzid, id, c.Seq, &container.Event{Body: &container.Event_Lost{Lost: why}}))
	}
	return drafts
}

// admit refuses the heartbeat of a process that is not the one that its container's id
// stands for: of two that live, the one that began first, or the facts would change with
// every call of either; and one that has left, whose call was on its way for too long.
func admit(f fleet.State, hb *replica.Heartbeat) *bus.CommandError {
	id, began := hb.GetContainer().GetId(), hb.GetContainer().GetStartedUs()
	was := f.Containers[id]
	then := was.Container.V.GetStartedUs()
	switch {
	case began == 0 || then == 0:
	case was.Alive && then > began:
		return bus.Refuse(bus.CodeConflict, "container %q is another process, which began later and is at %s: give each of them a --container of its own, or end this one",
			id, cmp.Or(was.Container.V.GetAgentAddress(), was.Container.V.GetGrpcAddress(), was.Container.V.GetRowsAddress(), "no address"))
	case was.Left && then == began && !hb.GetLeaving():
		return bus.Refuse(bus.CodeConflict, "container %q has left: this call is late", id)
	}
	return nil
}

func lostReplica(bzid string, f fleet.State, key, reason string) bus.Draft {
	return replicaFact(bzid, key, f.Replicas[key].Seq, &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: reason}}})
}

// held are the keys of the live replicas on a container, sorted.
func held(f fleet.State, id string) []string {
	var keys []string
	for key, r := range f.Replicas {
		if r.Alive && r.Replica.V.GetContainer() == id {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// members are the containers that somebody has to keep alive, sorted: live ones, and
// those that a live replica names.
func members(f fleet.State) []string {
	ids := map[string]bool{}
	for id, c := range f.Containers {
		if c.Alive && c.Container.V.GetZnode() == "" { // a foreign agent lives as long as its node
			ids[id] = true
		}
	}
	for _, r := range f.Replicas {
		if r.Alive && r.Replica.V.GetZnode() == "" {
			ids[r.Replica.V.GetContainer()] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// sameButState compares what only a new registration may change.
func sameButState(a, b *replica.Replica) bool {
	x, y := proto.CloneOf(a), proto.CloneOf(b)
	x.Stat, x.Version, y.Stat, y.Version = 0, 0, 0, 0
	return proto.Equal(x, y)
}

// moved is true when a figure differs by a tenth of the greater one, or by its sign.
func moved(was, now *container.ResourceReported) bool {
	tenth := func(a, b float64) bool { return math.Abs(a-b) >= 0.1*max(math.Abs(a), math.Abs(b)) && a != b }
	return tenth(float64(was.GetMemory()), float64(now.GetMemory())) ||
		tenth(was.GetCpu(), now.GetCpu()) ||
		tenth(was.GetNetwork(), now.GetNetwork()) ||
		tenth(was.GetWorkLoad(), now.GetWorkLoad())
}

func sorted(in []*replica.Replica) []*replica.Replica {
	out := slices.Clone(in)
	slices.SortFunc(out, func(a, b *replica.Replica) int { return cmp.Compare(a.Key(), b.Key()) })
	return out
}
