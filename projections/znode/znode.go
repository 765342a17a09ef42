package znode

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/internal/fold"
)

// Name and Version identify the view's snapshots; Version rises with every change of
// State or of what Fold makes of a log.
const (
	Name    = "znode"
	Version = 1
)

// unnamable is the reason under which an event is skipped whose names make no path.
const unnamable = "path"

// State is the tree after the event at Seq, which is its last zxid. Besides the nodes it
// remembers what later events leave out.
type State struct {
	Seq        uint64                 `json:"seq"`
	Nodes      map[string]*Node       `json:"nodes"`      // by path
	Containers map[string]Member      `json:"containers"` // by "<bzid>/<container id>"
	Replicas   map[string]ReplicaMeta `json:"replicas"`   // by path
	Skipped    fold.Skipped           `json:"skipped,omitempty"`

	children map[string]map[string]struct{} // follows from Nodes
	changes  []Change
}

// Member is what the tree knows of a live container.
type Member struct {
	Container events.JSON[*container.Container]        `json:"container"`
	Resource  events.JSON[*container.ResourceReported] `json:"resource,omitzero"` // nil V: not reported yet
	Node      string                                   `json:"node,omitempty"`    // path of its own node; "": none yet
}

// New is an empty tree, as ZooKeeper creates it.
func New() State {
	s := State{
		Nodes: map[string]*Node{}, Containers: map[string]Member{}, Replicas: map[string]ReplicaMeta{},
		children: map[string]map[string]struct{}{},
	}
	s.Nodes["/"] = &Node{}
	for _, path := range []string{"/zookeeper", "/zookeeper/config", "/zookeeper/quota"} {
		s.Nodes[path] = &Node{}
		s.link(path)
	}
	return s
}

// Fold returns the state after r, and consumes s. The same log folds to the same State.
func Fold(s State, r events.Recorded) State {
	s, _ = Apply(s, r)
	return s
}

// Apply is Fold, and says which nodes changed, in the order in which watches fire. The
// changes are valid until the next Apply.
func Apply(s State, r events.Recorded) (State, []Change) {
	if r.Seq <= s.Seq {
		return s, nil // redelivered
	}
	s.Seq, s.changes = r.Seq, nil
	p, skip := fold.Open(r)
	if skip == "" && p.Request {
		return s, nil
	}
	known := true
	if skip == "" {
		t := tree{s: &s, zxid: r.Seq, ms: r.Time.UnixMilli()}
		switch e := r.Event.(type) {
		case *model.Event:
			known, skip = t.model(p, e)
		case *publish.Event:
			known, skip = t.publish(p, e)
		case *container.Event:
			known, skip = t.container(p, e)
		case *replica.Event:
			known, skip = t.replica(p, e)
		}
	}
	if !known {
		skip = fold.Unknown
	}
	if skip != "" {
		s.Skipped = s.Skipped.Count(skip)
	}
	return s, s.changes
}

// at joins the steps of a path, and refuses what ZooKeeper would, and first steps that
// name a past state.
func at(steps ...string) (string, bool) {
	for _, step := range steps {
		if !component(step) {
			return "", false
		}
	}
	return "/" + strings.Join(steps, "/"), !strings.HasPrefix(steps[0], "@")
}

// model, like its siblings, is false for a body it does not know, and gives the reason
// why an event is skipped.
func (t tree) model(p events.Parts, e *model.Event) (known bool, skip string) {
	path, ok := at(p.BZID, "portal", p.Aggregate)
	if !ok {
		return true, unnamable
	}
	switch b := e.GetBody().(type) {
	case *model.Event_LoadAccepted:
		l := b.LoadAccepted.GetLoad()
		m := ModelMeta{
			ModelName: l.GetModelName(), ModelDir: l.GetModelDir(), Ckpt: l.GetCkpt(),
			NumShard: l.GetNumShard(), Action: "NONE", SpecReplicas: l.GetSpecReplicas(),
		}
		if m.NumShard == 0 {
			m.NumShard = -1
		}
		t.put(path, m.Bytes(), 0)
	case *model.Event_UnloadAccepted:
		t.remove(path)
	case *model.Event_DeclareRequested, *model.Event_LoadRequested, *model.Event_UnloadRequested,
		*model.Event_Declared, *model.Event_DeclareRefused, *model.Event_LoadRefused, *model.Event_UnloadRefused:
	default:
		return false, ""
	}
	return true, ""
}

func (t tree) publish(p events.Parts, e *publish.Event) (known bool, skip string) {
	dir, ok := at(p.BZID, "publish")
	if _, named := at(p.BZID, "publish", p.Aggregate); !ok || !named {
		return true, unnamable
	}
	switch b := e.GetBody().(type) {
	case *publish.Event_Planned:
		t.plan(dir, p.Aggregate, b.Planned)
	case *publish.Event_Withdrawn:
		t.plan(dir, p.Aggregate, nil)
	case *publish.Event_PlanFailed:
	default:
		return false, ""
	}
	return true, ""
}

// plan writes the model's publish nodes, those of one shard and replica merged, and
// removes the ones that are no longer planned.
func (t tree) plan(dir, name string, p *publish.Planned) {
	want := map[string]PublishMeta{}
	var paths []string
	for _, a := range p.GetAssignments() {
		path := dir + "/" + strconv.FormatUint(uint64(a.GetShard()), 10) + ":" + strconv.FormatUint(uint64(a.GetReplica()), 10) + ":" + name
		m, dup := want[path]
		if !dup {
			paths = append(paths, path)
			m = PublishMeta{
				ShardID: int64(a.GetShard()), ReplicaID: int64(a.GetReplica()), ModelName: name,
				NumPS: int64(p.GetNumPs()), SubModels: map[string]string{}, PType: 1,
			}
		}
		for sub, path := range a.GetSubModels() {
			m.SubModels[sub] = path
		}
		want[path] = m
	}
	for _, path := range paths {
		m := want[path]
		m.TotalPublishNum = len(paths)
		t.put(path, m.Bytes(), 0)
	}
	for _, child := range t.s.Children(dir) {
		if _, ok := want[dir+"/"+child]; ok {
			continue
		}
		if f := strings.SplitN(child, ":", 3); len(f) == 3 && f[2] == name {
			t.remove(dir + "/" + child)
		}
	}
}

func (t tree) container(p events.Parts, e *container.Event) (known bool, skip string) {
	key := p.BZID + "/" + p.Aggregate
	m, live := t.s.Containers[key]
	switch b := e.GetBody().(type) {
	case *container.Event_Reported:
		m.Container.V = b.Reported.GetContainer()
	case *container.Event_ResourceReported:
		if !live {
			return true, "" // of nobody we know
		}
		m.Resource.V = b.ResourceReported
	case *container.Event_Lost:
		t.disown(m.Node, p)
		delete(t.s.Containers, key)
		return true, ""
	default:
		return false, ""
	}
	path, data, ok := m.node(p.BZID)
	if m.Node != path {
		t.disown(m.Node, p)
	}
	m.Node = path
	t.s.Containers[key] = m
	if !ok {
		return true, unnamable
	}
	if path != "" {
		t.put(path, data, Owner(p.BZID, p.Aggregate))
	}
	return true, ""
}

// disown removes the node unless another container has taken it over.
func (t tree) disown(path string, p events.Parts) {
	if n := t.s.Nodes[path]; n != nil && n.Owner == Owner(p.BZID, p.Aggregate) {
		t.remove(path)
	}
}

// node is where the container shows itself: a training task among its job's, an agent
// among the resources once it has reported some. path is "" when it shows nowhere.
func (m Member) node(bzid string) (path string, data []byte, ok bool) {
	c := m.Container.V
	if c.GetKind() == "training" {
		addr := c.GetGrpcAddress()
		if addr == "" {
			addr = c.GetRowsAddress()
		}
		if c.GetServerType() == "" {
			return "", nil, false
		}
		if path, ok = at("monolith", c.GetJob(), c.GetServerType()+"."+strconv.Itoa(int(c.GetIndex()))); !ok {
			return "", nil, false
		}
		return path, []byte(addr), true
	}
	if m.Resource.V == nil {
		return "", nil, true
	}
	if path, ok = at(bzid, "resource", strconv.Itoa(int(c.GetShard()))+":"+strconv.Itoa(int(c.GetReplica()))); !ok {
		return "", nil, false
	}
	r := m.Resource.V
	return path, ResourceSpec{
		Address: c.GetAgentAddress(), ShardID: c.GetShard(), ReplicaID: c.GetReplica(),
		Memory: r.GetMemory(), CPU: r.GetCpu(), Network: r.GetNetwork(), WorkLoad: r.GetWorkLoad(),
	}.Bytes(), true
}

func (t tree) replica(p events.Parts, e *replica.Event) (known bool, skip string) {
	steps := strings.Split(p.Aggregate, "/")
	path, ok := at(slices.Concat([]string{p.BZID, "service"}, steps)...)
	if !ok || len(steps) != 3 {
		return true, unnamable
	}
	switch b := e.GetBody().(type) {
	case *replica.Event_Registered:
		r := b.Registered.GetReplica()
		m := ReplicaMeta{
			Address: r.GetGrpcAddress(), Stat: int32(r.GetStat()), ModelName: r.GetModelName(), ServerType: r.GetServerType(),
			Task: r.GetTask(), Replica: r.GetReplica(), ArchonAddress: r.GetArchonAddress(),
		}
		owner := r.GetContainer()
		if owner == "" {
			owner = p.Aggregate
		}
		t.s.Replicas[path] = m
		t.put(path, m.Bytes(), Owner(p.BZID, owner))
	case *replica.Event_StateChanged:
		m, live := t.s.Replicas[path]
		if !live {
			break // never registered: nothing to change
		}
		m.Stat = int32(b.StateChanged.GetStat())
		t.s.Replicas[path] = m
		t.put(path, m.Bytes(), t.s.Nodes[path].Owner)
	case *replica.Event_Lost:
		delete(t.s.Replicas, path)
		t.remove(path)
	default:
		return false, ""
	}
	return true, ""
}

// Owner is the ephemeralOwner of a container's nodes: the same at every replay, and, by
// its first byte, never the id of a client's session.
func Owner(bzid, container string) int64 {
	h := sha256.Sum256([]byte(events.Escape(bzid) + "." + events.Escape(container)))
	return 'M'<<56 | int64(binary.BigEndian.Uint64(h[:])>>8)
}
