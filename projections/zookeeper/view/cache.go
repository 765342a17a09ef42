package view

import (
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/wire/znodedata"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
)

// cache holds what the fold has worked out and would work out again: nothing in it is
// state, and a state without it folds the same.
type cache struct {
	subjects map[events.Subject]*subject
	hosts    map[string]*host         // by the key of Containers
	replicas map[string]*boundReplica // by the key of Replicas
	scratch  []byte                   // payloads on their way into the arena
	asked    asked                    // the proposal that is being folded
	tooLarge bool                     // a node that the event asks for is not made: no node is that large
}

// maxCached bounds each of its maps; once one is full, all is forgotten.
const maxCached = 1 << 16

func newCache() *cache {
	return &cache{
		subjects: map[events.Subject]*subject{}, hosts: map[string]*host{}, replicas: map[string]*boundReplica{},
		scratch: make([]byte, 0, 512),
	}
}

// room makes room for one more in each map. They refer to one another, so none is cleared alone.
func (m *cache) room() {
	if len(m.subjects) >= maxCached || len(m.hosts) >= maxCached || len(m.replicas) >= maxCached {
		clear(m.subjects)
		clear(m.hosts)
		clear(m.replicas)
	}
}

// subject is one taken apart.
type subject struct {
	events.Parts
	foreign bool       // none of ours
	key     string     // "<bzid>/<aggregate>"
	path    string     // of a replica's node; "": it cannot have one
	node    tree.Place // of the same
	owner   int64      // of a container's nodes
	host    *host      // of a container; nil: not known yet
}

func (m *cache) subject(of events.Subject) *subject {
	if v := m.subjects[of]; v != nil {
		return v
	}
	of = events.Subject(strings.Clone(string(of))) // it may be part of a whole segment
	p, err := of.Parse()
	v := &subject{Parts: p, foreign: err != nil, key: p.BZID + "/" + p.Aggregate}
	switch p.Context {
	case "container":
		v.owner = Owner(p.BZID, p.Aggregate)
	case "replica":
		steps := strings.Split(p.Aggregate, "/")
		if path, ok := at(slices.Concat([]string{p.BZID, "service"}, steps)...); ok && len(steps) >= 3 && len(steps) <= 4 {
			v.path = path
		}
	}
	m.room()
	m.subjects[of] = v
	return v
}

// host is what a container's report makes of its nodes.
type host struct {
	known bool // what follows is of the report `of`
	of    *container.Container

	owner     int64  // of its bindings
	name      string // its name below bindings and container_service
	path      string // of its own node; "": it cannot have one
	node      tree.Place
	service   string // of its node below container_service; "": none
	serviceAt tree.Place
	info      []byte // what that holds
	skip      string // why it has none though it should

	sorted bool    // bound is what Bindings hold
	bound  []bound // by path
}

type bound struct {
	path, node string
	at         tree.Place
}

// host of a container, whose key is bzid/id, as it is reported in c.
func (m *cache) host(bzid, key string, c *container.Container) *host {
	h := m.hosts[key]
	if h == nil {
		m.room()
		h = &host{}
		m.hosts[key] = h
	}
	h.update(bzid, c)
	return h
}

// hostOf is host, of the subject's container.
func (m *cache) hostOf(p *subject, c *container.Container) *host {
	if p.host == nil {
		p.host = m.host(p.BZID, p.key, c)
	}
	p.host.update(p.BZID, c)
	return p.host
}

func (h *host) update(bzid string, c *container.Container) {
	if h.known && h.of == c {
		return
	}
	*h = host{known: true, of: c, owner: Owner(bzid, c.GetId()), name: ContainerNode(c), bound: h.bound[:0]}
	if c.GetKind() == "training" {
		if c.GetServerType() != "" {
			h.path, _ = named(at("monolith", c.GetJob(), c.GetServerType()+"."+strconv.Itoa(int(c.GetIndex()))))
		}
	} else {
		h.path, _ = named(at(bzid, "resource", strconv.Itoa(int(c.GetShard()))+":"+strconv.Itoa(int(c.GetReplica()))))
	}
	if c.GetKind() == "serving" {
		var ok bool
		if h.service, ok = named(at(bzid, "container_service", h.name)); !ok {
			h.skip = unnamable
		}
		h.info = ServiceInfoOf(c).Bytes()
	}
}

// named is a path that may be used, or none.
func named(path string, ok bool) (string, bool) {
	if !ok {
		return "", false
	}
	return path, true
}

// bindings are the host's by the path of their replica.
func (h *host) bindings(of map[string]string) []bound {
	if h.sorted {
		return h.bound
	}
	h.bound = h.bound[:0]
	for path, node := range of {
		h.bound = append(h.bound, bound{path: path, node: node})
	}
	slices.SortFunc(h.bound, func(a, b bound) int { return strings.Compare(a.path, b.path) })
	h.sorted = true
	return h.bound
}

// boundReplica is what the fold knows of a replica: its container, and its binding there.
type boundReplica struct {
	model, kind, container string
	task                   int32

	key  string // of the container
	host *host  // nil: not known yet
	of   *container.Container
	node string // of its binding, as of reports it; "": it cannot have one
	at   tree.Place
}

// replica is what is known of the replica at path.
func (m *cache) replica(bzid, path string, r znodedata.ReplicaMeta) *boundReplica {
	v := m.replicas[path]
	if v == nil || v.model != r.ModelName || v.kind != r.ServerType || v.container != r.Container || v.task != r.Task {
		m.room()
		v = &boundReplica{model: r.ModelName, kind: r.ServerType, container: r.Container, task: r.Task, key: bzid + "/" + r.Container}
		m.replicas[path] = v
	}
	return v
}

// locate finds the replica's container, which is reported as c.
func (m *cache) locate(bzid string, v *boundReplica, c *container.Container) *host {
	if v.host == nil {
		v.host = m.host(bzid, v.key, c)
	}
	v.host.update(bzid, c)
	if v.of != c || v.node == "" {
		v.of, v.at = c, tree.Place{}
		v.node, _ = at(bzid, "binding", v.model, replica.SubModel(v.kind, v.task)+":"+v.host.name)
	}
	return v.host
}
