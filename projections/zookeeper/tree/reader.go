package tree

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Bytes are node data. In JSON they are a string when they are UTF-8, so that people can
// read snapshots, and {"base64":"…"} otherwise; none at all are null.
type Bytes []byte

type base64Bytes struct {
	Base64 []byte `json:"base64"`
}

func (b Bytes) MarshalJSON() ([]byte, error) {
	if b == nil {
		return []byte("null"), nil
	}
	if utf8.Valid(b) {
		return json.Marshal(string(b))
	}
	return json.Marshal(base64Bytes{b})
}

func (b *Bytes) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*b = nil
		return nil
	}
	if bytes.HasPrefix(data, []byte("{")) {
		var v base64Bytes
		err := json.Unmarshal(data, &v)
		*b = v.Base64
		return err
	}
	var s string
	err := json.Unmarshal(data, &s)
	*b = Bytes(s)
	return err
}

// ChangeKind is what happened to a node; the values are ZooKeeper's watch event types.
type ChangeKind int32

// The kinds of change.
const (
	Created         ChangeKind = 1
	Deleted         ChangeKind = 2
	DataChanged     ChangeKind = 3
	ChildrenChanged ChangeKind = 4
)

// Change is one effect of an event, in the order in which watches fire.
type Change struct {
	Kind ChangeKind
	Path string
	ACL  []wire.ACL // the node's then: who may not read it is not told
}

// Reader asks a tree, and changes nothing.
type Reader struct{ t *Tree }

// Reader is what asks t.
func (t *Tree) Reader() Reader { return Reader{t} }

// Get returns a node's data and stat. The data must neither be changed nor be used after
// the next event: its place may hold something else then.
func (r Reader) Get(path string) ([]byte, wire.Stat, bool) {
	id := r.t.Find(path)
	if id == 0 {
		return nil, wire.Stat{}, false
	}
	return r.t.Data(id), r.t.StatOf(id), true
}

// Stat is Get without the data.
func (r Reader) Stat(path string) (wire.Stat, bool) {
	id := r.t.Find(path)
	if id == 0 {
		return wire.Stat{}, false
	}
	return r.t.StatOf(id), true
}

// Children are the names below path in byte order; none for a node that is not there.
func (r Reader) Children(path string) []string {
	id := r.t.Find(path)
	if id == 0 {
		return []string{}
	}
	return r.t.Names(id)
}

// ACL is a node's list, which must not be changed, and its stat.
func (r Reader) ACL(path string) ([]wire.ACL, wire.Stat, bool) {
	id := r.t.Find(path)
	if id == 0 {
		return nil, wire.Stat{}, false
	}
	return r.t.acls.lists[r.t.aclRef(id).list].acl, r.t.StatOf(id), true
}

// Session returns an open session.
func (r Reader) Session(id int64) (Session, bool) {
	v, ok := r.t.sessions[id]
	return v, ok
}

// Sessions are the ids of all open sessions, sorted.
func (r Reader) Sessions() []int64 {
	ids := make([]int64, 0, len(r.t.sessions))
	for id := range r.t.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Ephemerals are the paths that go with the owner, sorted: a session, or a service's
// container.
func (r Reader) Ephemerals(owner int64) []string { return r.t.ephemeralsOf(owner) }

// EphemeralOwners has every owner of ephemerals with how many it owns.
func (r Reader) EphemeralOwners() map[int64]int {
	m := make(map[int64]int, len(r.t.ephemerals))
	for owner, ids := range r.t.ephemerals {
		m[owner] = len(ids)
	}
	return m
}

// Over are the paths, sorted, of nodes that a DeleteContainer would remove at a time in
// Unix milliseconds: containers that have lost their children, and nodes whose time to
// live has passed.
func (r Reader) Over(ms int64) []string {
	t := r.t
	paths := []string{}
	for _, set := range []map[uint32]struct{}{t.containers, t.ttls} {
		for id := range set {
			if t.dirOf(id).kids == 0 && t.over(id, ms) {
				paths = append(paths, t.path(id))
			}
		}
	}
	slices.Sort(paths)
	return paths
}

// Count is how many nodes there are, "/" among them.
func (r Reader) Count() int { return r.t.count }

// DataSize is the bytes of all paths and data, as ZooKeeper's approximate data size.
func (r Reader) DataSize() int64 {
	var sum int64
	r.t.sizes(func(_ uint32, path, data int) { sum += int64(path + data) })
	return sum
}

// Walk visits every node with its path, in no order that matters, until visit says no.
// It is for tools: on a large tree it takes a while.
func (r Reader) Walk(visit func(path string, st wire.Stat) bool) {
	on := true
	r.t.walk(func(id uint32) {
		if on {
			on = visit(r.t.path(id), r.t.StatOf(id))
		}
	})
}

// sizes visits every node with the length of its path and data.
func (t *Tree) sizes(visit func(id uint32, path, data int)) {
	at := map[uint32]int{0: 0} // lengths of the paths of nodes with children
	t.walk(func(id uint32) {
		n := t.nodes.at(id)
		length := 0
		if id != root {
			length = at[n.parent] + 1 + int(n.nameLen&nameMask)
		}
		if n.dir != 0 {
			at[id] = length
		}
		visit(id, max(length, 1), int(n.dataLen))
	})
}
