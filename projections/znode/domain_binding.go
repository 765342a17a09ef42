package znode

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
)

// serviceNode shows a serving container below container_service, under the name its
// report gives it now.
func (t domain) serviceNode(p events.Parts, m *Member) (skip string) {
	want := ""
	if m.Container.V.GetKind() == "serving" {
		path, ok := at(p.BZID, "container_service", ContainerNode(m.Container.V))
		if !ok {
			skip = unnamable
		} else {
			want = path
		}
	}
	if m.Service != want {
		t.disown(m.Service, p)
	}
	m.Service = want
	if want != "" {
		t.put(want, ServiceInfoOf(m.Container.V).Bytes(), Owner(p.BZID, p.Aggregate))
	}
	return skip
}

// bindAll gives every replica that the container holds its binding, under the container's
// name as it is now.
func (t domain) bindAll(p events.Parts, fresh bool) {
	paths := slices.Collect(maps.Keys(t.s.Containers[p.BZID+"/"+p.Aggregate].Bindings))
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

// unbindAll ends what a container that is gone served.
func (t domain) unbindAll(bzid string, m Member) {
	for _, path := range slices.Sorted(maps.Values(m.Bindings)) {
		if id := t.tree.find(path); id != 0 && t.tree.owner(id) == Owner(bzid, m.Container.V.GetId()) {
			t.remove(path)
		}
	}
}

// bind makes the binding of one replica what its state asks for: a node while it is
// AVAILABLE in a container that lives. Replicas of one sub-model in one container share it.
func (t domain) bind(bzid, path string) {
	r := t.s.Replicas[path]
	key := bzid + "/" + r.Container
	m, live := t.s.Containers[key]
	if !live {
		return
	}
	want := ""
	if r.Stat == int32(replica.State_AVAILABLE) {
		want, _ = at(bzid, "binding", r.ModelName, BindingNode(r.subModel(), m.Container.V))
	}
	t.rebind(bzid, &m, path, want)
	t.s.Containers[key] = m
}

// unbind takes a replica's binding away; r is what it was.
func (t domain) unbind(bzid, path string, r ReplicaMeta) {
	key := bzid + "/" + r.Container
	if m, live := t.s.Containers[key]; live {
		t.rebind(bzid, &m, path, "")
		t.s.Containers[key] = m
	}
}

func (t domain) rebind(bzid string, m *Member, path, want string) {
	was := m.Bindings[path]
	if was != want {
		delete(m.Bindings, path)
		if was != "" && !slices.Contains(slices.Collect(maps.Values(m.Bindings)), was) {
			t.disown(was, events.Parts{BZID: bzid, Aggregate: m.Container.V.GetId()})
		}
	}
	if want == "" {
		return
	}
	if m.Bindings == nil {
		m.Bindings = map[string]string{}
	}
	m.Bindings[path] = want
	t.put(want, []byte{}, Owner(bzid, m.Container.V.GetId()))
}

// subModel is the exported folder that the replica serves.
func (r ReplicaMeta) subModel() string {
	if r.ServerType == "entry" {
		return "entry"
	}
	return r.ServerType + "_" + strconv.Itoa(int(r.Task))
}
