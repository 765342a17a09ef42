package view

import (
	"maps"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/wire/znodedata"
)

// serviceNode shows a serving container below container_service, under the name its
// report gives it now.
func (t domain) serviceNode(p *subject, h *host, m *Member) (skip string) {
	if m.Service != h.service {
		t.disown(m.Service, p.owner)
	}
	m.Service = h.service
	if h.service != "" {
		t.putAt(t.tree.Look(h.service, &h.serviceAt), h.service, h.info, p.owner)
	}
	return h.skip
}

// bindAll gives every replica that the container holds its binding, under the container's
// name as it is now.
func (t domain) bindAll(p *subject, fresh bool) {
	paths := slices.Collect(maps.Keys(t.s.Containers[p.key].Bindings))
	if fresh { // replicas that were reported before their container
		service, _ := at(p.BZID, "service")
		for path, r := range t.s.Replicas {
			if r.Container == p.Aggregate && strings.HasPrefix(path, service+"/") {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		t.bind(p.BZID, path)
	}
}

// bindAgain is bindAll of a container that is as it was: only nodes that clients removed
// or changed have to be put right.
func (t domain) bindAgain(h *host, m Member) {
	all := h.bindings(m.Bindings)
	for i := range all {
		b := &all[i]
		t.putAt(t.tree.Look(b.node, &b.at), b.node, []byte{}, h.owner)
	}
}

// unbindAll ends what a container that is gone served.
func (t domain) unbindAll(bzid string, m Member) {
	for _, path := range slices.Sorted(maps.Values(m.Bindings)) {
		if id := t.tree.Find(path); id != 0 && t.tree.Owner(id) == Owner(bzid, m.Container.V.GetId()) {
			t.remove(path)
		}
	}
}

// bind makes the binding of one replica what its state asks for: a node while it is
// AVAILABLE in a container that lives. Replicas of one sub-model in one container share it.
func (t domain) bind(bzid, path string) {
	r := t.s.Replicas[path]
	on := t.s.cache.replica(bzid, path, r)
	m, live := t.s.Containers[on.key]
	if !live {
		return
	}
	h := t.s.cache.locate(bzid, on, m.Container.V)
	want := ""
	if r.Stat == int32(replica.State_AVAILABLE) {
		want = on.node
	}
	t.rebind(on, h, m, path, want)
}

// unbind takes a replica's binding away; r is what it was.
func (t domain) unbind(bzid, path string, r znodedata.ReplicaMeta) {
	on := t.s.cache.replica(bzid, path, r)
	if m, live := t.s.Containers[on.key]; live {
		t.rebind(on, t.s.cache.locate(bzid, on, m.Container.V), m, path, "")
	}
}

// rebind makes want, its node or "", the binding of the replica at path.
func (t domain) rebind(on *boundReplica, h *host, m Member, path, want string) {
	if was := m.Bindings[path]; was != want {
		h.sorted = false
		delete(m.Bindings, path)
		if was != "" && !holds(m.Bindings, was) {
			if was == on.node {
				t.disownAt(t.tree.Look(was, &on.at), was, h.owner)
			} else {
				t.disown(was, h.owner)
			}
		}
		if want != "" {
			if m.Bindings == nil {
				m.Bindings = map[string]string{}
				t.s.Containers[on.key] = m
			}
			m.Bindings[path] = want
		}
	}
	if want != "" {
		t.putAt(t.tree.Look(want, &on.at), want, []byte{}, h.owner)
	}
}

func holds(m map[string]string, value string) bool {
	for _, v := range m {
		if v == value {
			return true
		}
	}
	return false
}
