package replicaregistry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/wire/znodedata"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/role"
)

// foreignDrafts bounds one append of facts about foreign agents.
const foreignDrafts = 500

// foreigners makes facts of what agents that know only ZooKeeper write below service,
// resource, container_service and binding, so that the fleet has them. It compares what is there with what is known,
// whatever happened in between, so nothing is lost when it was not running.
type foreigners struct {
	bzid   string
	tree   *follow.Follower[view.State]
	fleet  *follow.Follower[fleet.State]
	store  role.Store
	logger *slog.Logger
	health *health.State
	dirty  chan struct{} // holds one: something has changed

	refused map[events.Subject]proto.Message // facts that the log does not take; of run alone
}

func newForeigners(env services.Env, tree *follow.Follower[view.State], f *follow.Follower[fleet.State], store role.Store) *foreigners {
	store.Wait = role.Waits(tree.Wait, f.Wait)
	return &foreigners{bzid: env.BZID, tree: tree, fleet: f, store: store, logger: env.Log, health: env.Health,
		dirty: make(chan struct{}, 1), refused: map[events.Subject]proto.Message{}}
}

// folded is a hook of the tree.
func (x *foreigners) folded(t view.State, r events.Recorded) {
	for _, c := range t.Effects().Changes {
		rest, mine := strings.CutPrefix(c.Path, "/"+x.bzid+"/")
		if mine && c.Kind != tree.ChildrenChanged && foreign(rest) {
			select {
			case x.dirty <- struct{}{}:
			default:
			}
			return
		}
	}
}

// foreign tells whether agents write below such a path of the namespace.
func foreign(path string) bool {
	dir, _, below := strings.Cut(path, "/")
	return below && (dir == "service" || dir == "resource" || dir == "container_service" || dir == "binding")
}

// run compares whenever something has changed, while this registry writes.
func (x *foreigners) run(ctx context.Context) {
	const problem = "facts of foreign agents"
	defer x.health.OK(problem)
	wait := retry.New(500*time.Millisecond, 5*time.Second)
	attempts := x.health.Attempts(problem)
	for {
		if err := x.compare(ctx); err != nil && ctx.Err() == nil {
			x.logger.Warn("facts of foreign agents not appended; trying again", "err", err)
			attempts.Failed(err)
			if wait.Wait(ctx) != nil {
				return
			}
			continue
		}
		wait.Reset()
		attempts.Succeeded()
		select {
		case <-ctx.Done():
			return
		case <-x.dirty:
		}
		if retry.Sleep(ctx, 10*time.Millisecond) != nil { // agents register in bursts
			return
		}
		select {
		case <-x.dirty:
		default:
		}
	}
}

// compare appends all there is to say. An append that the log refuses is cut in two until
// the one fact is found that it does not take; that agent is passed over until it says
// something else, and stops no other.
func (x *foreigners) compare(ctx context.Context) error {
	for most := foreignDrafts; ; {
		var asked []bus.Draft
		_, seqs, err := x.store.Append(ctx, func() ([]bus.Draft, error) {
			var there seen
			x.tree.Read(func(t view.State) { there = look(t, x.bzid) })
			x.fleet.Read(func(f fleet.State) { asked = decideForeign(x.bzid, f, there) })
			asked = slices.DeleteFunc(asked, func(d bus.Draft) bool {
				was := x.refused[d.Subject]
				return was != nil && proto.Equal(was, d.Event)
			})
			asked = asked[:min(len(asked), most)]
			return asked, nil
		})
		culprit := errors.Is(err, events.ErrInvalid) || errors.Is(err, bus.ErrTooLarge)
		switch {
		case err == nil && len(seqs) < most:
			return nil
		case err == nil:
			most = min(2*most, foreignDrafts)
		case !culprit || errors.Is(err, bus.ErrRepeated):
			return err
		case len(asked) > 1:
			most = (len(asked) + 1) / 2
		default:
			x.logger.Warn("a foreign agent's node makes no fact and is passed over", "subject", asked[0].Subject, "err", err)
			if len(x.refused) >= foreignDrafts {
				clear(x.refused) // they are found again
			}
			x.refused[asked[0].Subject] = asked[0].Event
			most = foreignDrafts
		}
	}
}

// seen is what foreign agents show, by container id and by replica key.
type seen struct {
	containers map[string]*container.Container
	resources  map[string]*container.ResourceReported
	replicas   map[string]*replica.Replica
}

// look reads the nodes of agents that are no service's own. What
// cannot be understood is passed over: it is somebody else's business.
func look(t view.State, bzid string) seen {
	s := seen{map[string]*container.Container{}, map[string]*container.ResourceReported{}, map[string]*replica.Replica{}}
	bySession := map[int64]string{}
	dir := "/" + bzid + "/resource"
	for _, name := range t.Children(dir) {
		path := dir + "/" + name
		data, st, _ := t.Get(path)
		r := struct {
			Address  string  `json:"address"`
			Memory   int64   `json:"memory"`
			CPU      float64 `json:"cpu"`
			Network  float64 `json:"network"`
			WorkLoad float64 `json:"work_load"`
		}{CPU: -1, Network: -1, WorkLoad: -1}
		shard, rep, ok := strings.Cut(name, ":")
		n, err1 := strconv.ParseInt(shard, 10, 64)
		m, err2 := strconv.ParseInt(rep, 10, 64)
		if !ok || err1 != nil || err2 != nil || tree.IsService(st.EphemeralOwner) || json.Unmarshal(data, &r) != nil || r.Memory < 0 {
			continue
		}
		id := view.ForeignContainer(name)
		c := &container.Container{
			Id: id, Kind: "serving", Shard: low31(n), Replica: low31(m), AgentAddress: r.Address, Znode: path,
		}
		resource := &container.ResourceReported{Memory: r.Memory, Cpu: r.CPU, Network: r.Network, WorkLoad: r.WorkLoad}
		if (&container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}}).Validate(id) != nil ||
			(&container.Event{Body: &container.Event_ResourceReported{ResourceReported: resource}}).Validate(id) != nil {
			continue
		}
		s.containers[id], s.resources[id] = c, resource
		if st.EphemeralOwner != 0 {
			bySession[st.EphemeralOwner] = id
		}
	}
	s.lookBindings(t, bzid)
	top := "/" + bzid + "/service"
	for _, base := range t.Children(top) {
		for _, step := range t.Children(top + "/" + base) {
			dir := top + "/" + base + "/" + step
			if _, _, isTask := task(step); isTask {
				s.look(t, dir, base, "", step, bySession)
				continue
			}
			if strings.Count(step, ":") == 1 && step == strings.ToLower(step) { // {idc}:{cluster}
				for _, sub := range t.Children(dir) {
					s.look(t, dir+"/"+sub, base, step, sub, bySession)
				}
			}
		}
	}
	return s
}

// low31 is a number as facts have it. Agents without one of their own count by 40 bits of a
// hash; 31 of them tell the few replicas of one task apart as well.
func low31(n int64) int32 {
	if n < 0 {
		return int32(max(n, math.MinInt32)) // -1: none
	}
	return int32(n & (1<<31 - 1))
}

// task takes {type}:{index} apart.
func task(step string) (kind string, index int32, ok bool) {
	kind, digits, ok := strings.Cut(step, ":")
	n, err := strconv.ParseInt(digits, 10, 32)
	switch kind {
	case "ps", "entry", "dense":
		return kind, int32(n), ok && err == nil && n >= 0
	}
	return "", 0, false
}

// look reads the replicas of one task.
func (s seen) look(t view.State, dir, base, dc, step string, bySession map[int64]string) {
	kind, index, ok := task(step)
	if !ok {
		return
	}
	for _, name := range t.Children(dir) {
		path := dir + "/" + name
		data, st, _ := t.Get(path)
		var m znodedata.ReplicaMeta
		n, err := strconv.ParseUint(name, 10, 64)
		if err != nil || tree.IsService(st.EphemeralOwner) || json.Unmarshal(data, &m) != nil || replica.State_name[m.Stat] == "" {
			continue
		}
		r := &replica.Replica{
			ModelName: base, ServerType: kind, Task: index, Replica: low31(int64(n)), DataCenter: dc,
			GrpcAddress: m.Address, GrpcAddressIpv6: m.AddressIPv6, ArchonAddress: m.ArchonAddress, ArchonAddressIpv6: m.ArchonAddressIPv6,
			Stat: replica.State(m.Stat), Znode: path, Container: bySession[st.EphemeralOwner],
		}
		if r.Container == "" {
			r.Container = fmt.Sprintf("znode-session-%x", uint64(st.EphemeralOwner))
		}
		if err := (&replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}).Validate(r.Key()); err == nil {
			s.replicas[r.Key()] = r
		}
	}
}

// decideForeign drafts what is there and not known, and what is known and gone. What an
// agent of ours holds stays its own.
func decideForeign(bzid string, f fleet.State, there seen) (drafts []bus.Draft) {
	for _, id := range slices.Sorted(keys(f.Containers, there.containers)) {
		was, now := f.Containers[id], there.containers[id]
		known := was.Alive && was.Container.V.GetZnode() != ""
		switch {
		case now == nil && known:
			drafts = append(drafts, containerFact(bzid, id, was.Seq, &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "its znode is gone"}}}))
		case now == nil || (was.Alive && !known):
		default:
			fresh := !was.Alive || !proto.Equal(was.Container.V, now)
			if fresh {
				drafts = append(drafts, containerFact(bzid, id, was.Seq, &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: now}}}))
			}
			if r := there.resources[id]; r != nil && (!was.Alive || was.Resource.V == nil || moved(was.Resource.V, r)) {
				drafts = append(drafts, containerFact(bzid, id, was.Seq, &container.Event{Body: &container.Event_ResourceReported{ResourceReported: r}}))
			}
		}
	}
	for _, key := range slices.Sorted(keys(f.Replicas, there.replicas)) {
		was, now := f.Replicas[key], there.replicas[key]
		known := was.Alive && was.Replica.V.GetZnode() != ""
		switch {
		case now == nil && known:
			drafts = append(drafts, lostReplica(bzid, f, key, "its znode is gone"))
		case now == nil || (was.Alive && !known):
		case !was.Alive || !sameButState(was.Replica.V, now):
			drafts = append(drafts, replicaFact(bzid, key, was.Seq, &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: now}}}))
		case was.Replica.V.GetStat() != now.GetStat():
			drafts = append(drafts, replicaFact(bzid, key, was.Seq, &replica.Event{Body: &replica.Event_StateChanged{StateChanged: &replica.StateChanged{Stat: now.GetStat()}}}))
		}
	}
	return drafts
}

// keys yields the keys of both maps.
func keys[A, B any](a map[string]A, b map[string]B) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range a {
			if !yield(k) {
				return
			}
		}
		for k := range b {
			if _, both := a[k]; !both && !yield(k) {
				return
			}
		}
	}
}
