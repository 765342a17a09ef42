package view

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/wire/znodedata"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
)

// domain writes the nodes in which the facts of services show themselves.
type domain struct {
	s    *State
	tree *tree.Tree
}

// put creates the node, with whatever parents it lacks, or sets it. The bytes that
// already stand there change nothing. A node of another owner is replaced, because an
// owner never changes.
func (t domain) put(path string, data []byte, owner int64) {
	t.putAt(t.tree.Find(path), path, data, owner)
}

// putAt is put where the node that stands at path is known, 0: none does.
func (t domain) putAt(id uint32, path string, data []byte, owner int64) {
	if len(path)+len(data) > tree.MaxBlob {
		t.s.cache.tooLarge = true
		return
	}
	switch {
	case id == 0:
		t.create(path, data, owner)
	case t.tree.Owner(id) != owner && t.tree.Kids(id) == 0:
		t.tree.Remove(id, path)
		t.create(path, data, owner)
	case !bytes.Equal(t.tree.Data(id), data):
		t.tree.Set(id, path, data)
	}
}

// create makes the node and the parents it lacks. What a client made ephemeral stays,
// now that it has a child of a service.
func (t domain) create(path string, data []byte, owner int64) uint32 {
	up := tree.Parent(path)
	parent := t.tree.Find(up)
	if parent == 0 {
		parent = t.create(up, []byte{}, 0)
	}
	if tree.IsEphemeral(t.tree.Owner(parent)) {
		t.tree.Disown(parent)
	}
	return t.tree.Create(parent, path, path[strings.LastIndexByte(path, '/')+1:], data, owner, nil)
}

// remove deletes a node without children; anything else is left alone.
func (t domain) remove(path string) {
	if id := t.tree.Find(path); id != 0 && t.tree.Kids(id) == 0 {
		t.tree.Remove(id, path)
	}
}

// at joins the steps of a path, and refuses what ZooKeeper would, and first steps that
// name a past state.
func at(steps ...string) (string, bool) {
	for _, step := range steps {
		if !tree.ValidName(step) {
			return "", false
		}
	}
	return "/" + strings.Join(steps, "/"), !strings.HasPrefix(steps[0], "@")
}

// model, like its siblings, is false for a body it does not know, and gives the reason
// why an event is skipped.
func (t domain) model(p *subject, e *model.Event) (known bool, skip string) {
	path, ok := at(p.BZID, "portal", p.Aggregate)
	if !ok {
		return true, unnamable
	}
	switch b := e.GetBody().(type) {
	case *model.Event_LoadAccepted:
		l := b.LoadAccepted.GetLoad()
		m := znodedata.ModelMeta{
			ModelName: l.GetModelName(), ModelDir: l.GetModelDir(), Ckpt: l.GetCkpt(),
			NumShard: l.GetNumShard(), Action: "NONE", SpecReplicas: l.GetSpecReplicas(),
		}
		if m.NumShard == 0 {
			m.NumShard = -1
		}
		t.s.cache.scratch = m.Append(t.s.cache.scratch)
		t.put(path, t.s.cache.scratch, 0)
	case *model.Event_UnloadAccepted:
		t.remove(path)
	case *model.Event_DeclareRequested, *model.Event_LoadRequested, *model.Event_UnloadRequested,
		*model.Event_Declared, *model.Event_DeclareRefused, *model.Event_LoadRefused, *model.Event_UnloadRefused:
	default:
		return false, ""
	}
	return true, ""
}

func (t domain) publish(p *subject, e *publish.Event) (known bool, skip string) {
	if _, ok := at(p.BZID, "publish", p.Aggregate); !ok {
		return true, unnamable
	}
	dir := "/" + p.BZID + "/publish"
	switch b := e.GetBody().(type) {
	case *publish.Event_Planned:
		t.plan(dir, p.Aggregate, b.Planned)
	case *publish.Event_Withdrawn:
		t.plan(dir, p.Aggregate, nil)
	case *publish.Event_PlanFailed, *publish.Event_Led, *publish.Event_CanaryDeclared, *publish.Event_CanaryDecided:
	default:
		return false, ""
	}
	return true, ""
}

// plan writes the model's publish nodes, those of one shard and replica merged, and
// removes the ones that are no longer planned. An agent that knows only ZooKeeper does what
// its node says, so there it stands alone: our own agents read the plan.
func (t domain) plan(dir, name string, p *publish.Planned) {
	want := map[string]znodedata.PublishMeta{}
	var paths []string
	foreign := map[string]bool{}
	for _, a := range p.GetAssignments() {
		if node, _, _, ok := foreignNode(a.GetContainer()); ok {
			foreign[node] = true
		}
	}
	for _, a := range p.GetAssignments() {
		shard, number := int64(a.GetShard()), int64(a.GetReplica())
		node := strconv.FormatInt(shard, 10) + ":" + strconv.FormatInt(number, 10)
		if its, s, n, ok := foreignNode(a.GetContainer()); ok {
			node, shard, number = its, s, n
		} else if foreign[node] {
			continue
		}
		path := dir + "/" + node + ":" + name
		m, dup := want[path]
		if !dup {
			paths = append(paths, path)
			m = znodedata.PublishMeta{
				ShardID: shard, ReplicaID: number, ModelName: name,
				NumPS: int64(p.GetNumPs()), SubModels: map[string]string{}, PType: 1, IsSpec: p.GetIsSpec(),
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
	for _, child := range t.children(dir) {
		if _, ok := want[dir+"/"+child]; ok {
			continue
		}
		if f := strings.SplitN(child, ":", 3); len(f) == 3 && f[2] == name {
			t.remove(dir + "/" + child)
		}
	}
}

const foreignContainer = "znode-"

// ForeignContainer is the id of the container that a foreign agent's resource node of that
// name, {shard}:{replica}, becomes.
func ForeignContainer(node string) string { return foreignContainer + node }

// foreignNode undoes ForeignContainer; ok is false for a container of ours.
func foreignNode(id string) (node string, shard, number int64, ok bool) {
	node, ok = strings.CutPrefix(id, foreignContainer)
	s, n, two := strings.Cut(node, ":")
	shard, err1 := strconv.ParseInt(s, 10, 64)
	number, err2 := strconv.ParseInt(n, 10, 64)
	return node, shard, number, ok && two && err1 == nil && err2 == nil
}

func (t domain) container(p *subject, e *container.Event) (known bool, skip string) {
	m, live := t.s.Containers[p.key]
	moved := true // it may show itself elsewhere than before
	switch b := e.GetBody().(type) {
	case *container.Event_Reported:
		if b.Reported.GetContainer().GetZnode() != "" {
			return true, "" // its nodes are its own
		}
		m.Container.V = b.Reported.GetContainer()
	case *container.Event_ResourceReported:
		if !live {
			return true, "" // of nobody we know
		}
		m.Resource.V = b.ResourceReported
		moved = false
	case *container.Event_Lost:
		t.disown(m.Node, p.owner)
		t.disown(m.Service, p.owner)
		t.unbindAll(p.BZID, m)
		delete(t.s.Containers, p.key)
		t.s.cache.hostOf(p, nil) // forgets what it held
		t.inherit(m.Node)
		return true, ""
	default:
		return false, ""
	}
	h := t.s.cache.hostOf(p, m.Container.V)
	path, ok := m.node(h)
	left := ""
	if m.Node != path {
		t.disown(m.Node, p.owner)
		left = m.Node
	}
	m.Node = path
	skip = t.serviceNode(p, h, &m)
	t.s.Containers[p.key] = m
	if !ok {
		skip = unnamable
	}
	if path != "" {
		t.s.cache.scratch = m.payload(t.s.cache.scratch[:0])
		t.putAt(t.tree.Look(path, &h.node), path, t.s.cache.scratch, p.owner)
	}
	t.inherit(left)
	if moved {
		t.bindAll(p, !live)
	} else {
		t.bindAgain(h, m)
	}
	return true, skip
}

// inherit gives the node that a container has left to another one that shows itself there,
// the first by its key: containers that were given no shard and replica of their own share
// one.
func (t domain) inherit(path string) {
	if path == "" || t.tree.Find(path) != 0 {
		return
	}
	heir := ""
	for key, m := range t.s.Containers {
		if m.Node == path && (heir == "" || key < heir) {
			heir = key
		}
	}
	if heir == "" {
		return
	}
	m := t.s.Containers[heir]
	id := m.Container.V.GetId()
	t.s.cache.scratch = m.payload(t.s.cache.scratch[:0])
	t.put(path, t.s.cache.scratch, Owner(strings.TrimSuffix(heir, "/"+id), id))
}

// disown removes the node unless another container has taken it over.
func (t domain) disown(path string, owner int64) {
	if path != "" {
		t.disownAt(t.tree.Find(path), path, owner)
	}
}

// disownAt is disown where the node that stands at path is known, 0: none does.
func (t domain) disownAt(id uint32, path string, owner int64) {
	if id != 0 && t.tree.Owner(id) == owner && t.tree.Kids(id) == 0 {
		t.tree.Remove(id, path)
	}
}

// node is where the container shows itself: a training task among its job's, an agent
// among the resources once it has reported some. path is "" when it shows nowhere.
func (m Member) node(h *host) (path string, ok bool) {
	if m.Container.V.GetKind() != "training" && m.Resource.V == nil {
		return "", true
	}
	return h.path, h.path != ""
}

// payload appends what that node holds.
func (m Member) payload(to []byte) []byte {
	c := m.Container.V
	if c.GetKind() == "training" {
		addr := c.GetGrpcAddress()
		if addr == "" {
			addr = c.GetRowsAddress()
		}
		return append(to, addr...)
	}
	r := m.Resource.V
	return znodedata.ResourceSpec{
		Address: c.GetAgentAddress(), ShardID: int64(c.GetShard()), ReplicaID: int64(c.GetReplica()),
		Memory: r.GetMemory(), CPU: r.GetCpu(), Network: r.GetNetwork(), WorkLoad: r.GetWorkLoad(),
	}.Append(to)
}

func (t domain) replica(p *subject, e *replica.Event) (known bool, skip string) {
	path := p.path
	if path == "" {
		return true, unnamable
	}
	switch b := e.GetBody().(type) {
	case *replica.Event_Registered:
		r := b.Registered.GetReplica()
		if r.GetZnode() != "" {
			return true, "" // its node is its own
		}
		m := znodedata.ReplicaMeta{
			Address: r.GetGrpcAddress(), Stat: int32(r.GetStat()), ModelName: r.GetModelName(), ServerType: r.GetServerType(),
			Task: r.GetTask(), Replica: int64(r.GetReplica()), ArchonAddress: r.GetArchonAddress(),
			AddressIPv6: r.GetGrpcAddressIpv6(), ArchonAddressIPv6: r.GetArchonAddressIpv6(),
			Container: r.GetContainer(),
		}
		owner := r.GetContainer()
		if owner == "" {
			owner = p.Aggregate
		}
		if was := t.s.Replicas[path]; was.Container != m.Container {
			t.unbind(p.BZID, path, was)
		}
		t.s.Replicas[path] = m
		t.s.cache.scratch = m.Append(t.s.cache.scratch)
		t.putAt(t.tree.Look(path, &p.node), path, t.s.cache.scratch, Owner(p.BZID, owner))
		t.bind(p.BZID, path)
	case *replica.Event_StateChanged:
		m, live := t.s.Replicas[path]
		if !live {
			break // never registered: nothing to change
		}
		m.Stat = int32(b.StateChanged.GetStat())
		t.s.Replicas[path] = m
		if id := t.tree.Look(path, &p.node); id != 0 { // else it was too large to be made
			t.s.cache.scratch = m.Append(t.s.cache.scratch)
			t.putAt(id, path, t.s.cache.scratch, t.tree.Owner(id))
		}
		t.bind(p.BZID, path)
	case *replica.Event_Lost:
		if _, live := t.s.Replicas[path]; !live {
			break
		}
		t.unbind(p.BZID, path, t.s.Replicas[path])
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
	return tree.ServiceOwner<<56 | int64(binary.BigEndian.Uint64(h[:])>>8)
}

// layout writes the declared saved models and the entries of layouts.
func (t domain) layout(p *subject, e *layout.Event) (known bool, skip string) {
	name, dir, ok := layout.Parse(p.Aggregate)
	if !ok {
		return true, unnamable
	}
	steps := []string{p.BZID, "saved_models", name}
	if name == "" {
		steps = append([]string{p.BZID, "layouts"}, strings.Split(dir, "/")...)
	}
	base, ok := at(steps...)
	if !ok {
		return true, unnamable
	}
	each := func(names []string, do func(path string)) {
		for _, n := range names {
			if !tree.ValidName(n) {
				skip = unnamable
				continue
			}
			do(base + "/" + n)
		}
	}
	switch b := e.GetBody().(type) {
	case *layout.Event_SavedModelsDeclared:
		for _, m := range b.SavedModelsDeclared.GetSavedModels() {
			each([]string{m.GetSubGraph()}, func(path string) {
				t.put(path, DeployConfigOf(m.GetConfig()).Bytes(), 0)
			})
		}
	case *layout.Event_SavedModelsRemoved:
		each(b.SavedModelsRemoved.GetSubGraphs(), t.remove)
	case *layout.Event_EntriesAdded:
		each(b.EntriesAdded.GetEntries(), func(path string) {
			if t.tree.Find(path) == 0 {
				t.create(path, []byte{}, 0)
			}
		})
	case *layout.Event_EntriesRemoved:
		each(b.EntriesRemoved.GetEntries(), t.remove)
	case *layout.Event_DeclareRequested, *layout.Event_RemoveRequested, *layout.Event_DeclareExportRequested,
		*layout.Event_AddEntryRequested, *layout.Event_RemoveEntryRequested, *layout.Event_PublishRequested,
		*layout.Event_UnpublishRequested, *layout.Event_Refused:
	default:
		return false, ""
	}
	return true, skip
}

// children of path, none when it is not there.
func (t domain) children(path string) []string {
	if id := t.tree.Find(path); id != 0 {
		return t.tree.Names(id)
	}
	return nil
}
