// Package agentdata is what the original's agents and scheduler know of a namespace: its
// portal, publish, resource and service nodes as a cache that follows watches, what they
// make of it (who is to load what, which nodes to write, who answers), and the events
// that they put into their queue. All of it is pure: nodes and watch events go in, from
// the znode view, our ZooKeeper port or a real ensemble, and values come out.
package agentdata

import (
	"maps"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/wire/znodedata"
)

// Kind is what happened to a node, by the names that kazoo's watches use.
type Kind string

const (
	Seen    Kind = "NONE" // it was there when the watch was set
	Created Kind = "CREATED"
	Changed Kind = "CHANGED"
	Deleted Kind = "DELETED"
)

// Change is one call of a data watch.
type Change struct {
	Kind Kind
	Path string
	Data []byte // nil for Deleted
}

// EventType says what a queued event is about.
type EventType int

const (
	PortalEvent   EventType = 1
	ServiceEvent  EventType = 2
	PublishEvent  EventType = 3
	ResourceEvent EventType = 4
)

// Event is what the original's watches put into the queue between it and its scheduler.
type Event struct {
	Path string
	Data []byte
	Type EventType
}

// Self is the process for which the mirror looks at the namespace.
type Self struct {
	BZID    string
	Shard   int64
	Replica int64
	Host    string // address without a port, by which it knows its own replicas
}

// Mirror is the cache. It is not safe for concurrent use.
type Mirror struct {
	self Self
	data map[string][]byte // by path
}

// New is an empty cache.
func New(self Self) *Mirror { return &Mirror{self: self, data: map[string][]byte{}} }

// The base paths of the namespace.
func (m *Mirror) base(what string) string { return "/" + m.self.BZID + "/" + what }

// Portal, Publish, Resource and Service are the folders that are watched.
func (m *Mirror) Portal() string   { return m.base("portal") }
func (m *Mirror) Publish() string  { return m.base("publish") }
func (m *Mirror) Resource() string { return m.base("resource") }
func (m *Mirror) Service() string  { return m.base("service") }

// Reset forgets everything, as after the loss of a session: the watches that are set
// anew fill it again.
func (m *Mirror) Reset() { clear(m.data) }

// Apply folds one call of a watch, and returns what it puts into the queue. Portal nodes
// that change are passed over, as the original does; what stands elsewhere than in the
// four folders is nobody's concern here.
func (m *Mirror) Apply(c Change) []Event {
	switch {
	case below(c.Path, m.Portal(), 1):
		return m.portal(c)
	case below(c.Path, m.Publish(), 1):
		return m.publish(c)
	case below(c.Path, m.Resource(), 1):
		m.keep(c)
	case below(c.Path, m.Service(), 3), below(c.Path, m.Service(), 4): // with idc:cluster between
		m.keep(c)
	}
	return nil
}

// below is true for a path n steps under base.
func below(path, base string, n int) bool {
	rest, ok := strings.CutPrefix(path, base+"/")
	return ok && rest != "" && strings.Count(rest, "/") == n-1
}

func (m *Mirror) keep(c Change) {
	if c.Kind == Deleted {
		delete(m.data, c.Path)
	} else {
		m.data[c.Path] = slices.Clone(c.Data)
	}
}

// portal tells of models that come and go; the model's meta says which, by its action.
func (m *Mirror) portal(c Change) []Event {
	data := c.Data
	switch c.Kind {
	case Changed:
		return nil
	case Deleted:
		var known bool
		if data, known = m.data[c.Path]; !known {
			return nil
		}
	}
	m.keep(c)
	meta, err := DecodeModelMeta(data)
	if err != nil {
		return nil // what nobody can read, nobody can load
	}
	meta.Action = string(c.Kind)
	return []Event{{Path: c.Path, Data: meta.Bytes(), Type: PortalEvent}}
}

// publish counts a model's nodes, and tells once they are all there, or all gone.
func (m *Mirror) publish(c Change) []Event {
	data := c.Data
	if c.Kind == Deleted {
		data = m.data[c.Path]
	}
	m.keep(c)
	meta, err := DecodePublishMeta(data)
	if err != nil {
		return nil
	}
	_, _, model, ok := ParsePublish(c.Path)
	if !ok {
		return nil
	}
	if n := len(m.Published(model)); n != 0 && n != meta.TotalPublishNum {
		return nil
	}
	return []Event{{Path: c.Path, Data: meta.Bytes(), Type: PublishEvent}}
}

// Get is a cached node's data.
func (m *Mirror) Get(path string) (data []byte, ok bool) {
	data, ok = m.data[path]
	return data, ok
}

// Children are the names of the steps that follow path in the cache, in order.
func (m *Mirror) Children(path string) []string {
	names := map[string]bool{}
	for p := range m.data {
		if rest, ok := strings.CutPrefix(p, strings.TrimSuffix(path, "/")+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// under are the cached paths of a folder, in order.
func (m *Mirror) under(base string) []string {
	var out []string
	for p := range m.data {
		if strings.HasPrefix(p, base+"/") {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// Resources are the resources that agents report, by path.
func (m *Mirror) Resources() []znodedata.ResourceSpec {
	var out []znodedata.ResourceSpec
	for _, p := range m.under(m.Resource()) {
		if r, err := DecodeResourceSpec(m.data[p]); err == nil {
			out = append(out, r)
		}
	}
	return out
}

// Published are the paths of a model's publish nodes.
func (m *Mirror) Published(model string) []string {
	var out []string
	for _, p := range m.under(m.Publish()) {
		if _, _, name, ok := ParsePublish(p); ok && name == model {
			out = append(out, p)
		}
	}
	return out
}

// ParsePublish takes the node {shard}:{replica}:{model} apart.
func ParsePublish(path string) (shard, replica int64, model string, ok bool) {
	f := strings.SplitN(path[strings.LastIndexByte(path, '/')+1:], ":", 3)
	if len(f) != 3 || f[2] == "" {
		return 0, 0, "", false
	}
	shard, ok1 := integer(f[0])
	replica, ok2 := integer(f[1])
	return shard, replica, f[2], ok1 && ok2
}

// CleanUp is what an elected leader deletes before it watches the portal: publish nodes
// of models that the portal does not have. portal and publish are the children of the
// two folders.
func (m *Mirror) CleanUp(portal, publish []string) []Write {
	var out []Write
	for _, name := range publish {
		if _, _, model, ok := ParsePublish(name); ok && !slices.Contains(portal, model) {
			out = append(out, Write{Path: m.Publish() + "/" + name, Delete: true})
		}
	}
	return out
}
