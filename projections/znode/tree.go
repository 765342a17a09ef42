// Package znode is the ZooKeeper tree as a view: each event is one ordered list of
// operations on nodes, atomic at its sequence, and the sequence is the zxid. The bytes
// in the nodes are those that Monolith's Python services read and write.
package znode

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// Node is one znode with the figures of its stat.
type Node struct {
	Data    Bytes  `json:"data"`
	Czxid   uint64 `json:"czxid"` // sequence that created it
	Mzxid   uint64 `json:"mzxid"` // sequence that last wrote it
	Pzxid   uint64 `json:"pzxid"` // sequence that last changed its list of children
	Ctime   int64  `json:"ctime"` // Unix milliseconds, like Mtime
	Mtime   int64  `json:"mtime"`
	Version int32  `json:"version"`         // writes since it was created
	Creates int32  `json:"creates"`         // children ever created below it
	Owner   int64  `json:"owner,omitempty"` // ephemeralOwner, 0: persistent
}

// Stat is what ZooKeeper tells about a node.
type Stat struct {
	Czxid, Mzxid                int64
	Ctime, Mtime                int64
	Version, Cversion, Aversion int32
	EphemeralOwner              int64
	DataLength, NumChildren     int32
	Pzxid                       int64
}

// Bytes are node data. In JSON they are a string when they are UTF-8, so that people can
// read snapshots, and {"base64":"…"} otherwise.
type Bytes []byte

type base64Bytes struct {
	Base64 []byte `json:"base64"`
}

func (b Bytes) MarshalJSON() ([]byte, error) {
	if utf8.Valid(b) {
		return json.Marshal(string(b))
	}
	return json.Marshal(base64Bytes{b})
}

func (b *Bytes) UnmarshalJSON(data []byte) error {
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
}

// tree applies operations at one sequence and collects their changes.
type tree struct {
	s    *State
	zxid uint64
	ms   int64
}

// put creates the node, with whatever parents it lacks, or sets it. The bytes that
// already stand there change nothing. A node of another owner is replaced, because an
// owner never changes.
func (t tree) put(path string, data []byte, owner int64) {
	n := t.s.Nodes[path]
	switch {
	case n == nil:
		t.create(path, data, owner)
	case n.Owner != owner && len(t.s.children[path]) == 0:
		t.remove(path)
		t.create(path, data, owner)
	case !bytes.Equal(n.Data, data):
		n.Data, n.Mzxid, n.Mtime = data, t.zxid, t.ms
		n.Version++
		t.change(DataChanged, path)
	}
}

func (t tree) create(path string, data []byte, owner int64) {
	up := parent(path)
	if t.s.Nodes[up] == nil {
		t.create(up, nil, 0)
	}
	p := t.s.Nodes[up]
	p.Creates++
	p.Pzxid = t.zxid
	t.s.Nodes[path] = &Node{Data: data, Czxid: t.zxid, Mzxid: t.zxid, Pzxid: t.zxid, Ctime: t.ms, Mtime: t.ms, Owner: owner}
	t.s.link(path)
	t.change(Created, path)
	t.change(ChildrenChanged, up)
}

// remove deletes a node without children; anything else is left alone.
func (t tree) remove(path string) {
	if t.s.Nodes[path] == nil || len(t.s.children[path]) > 0 {
		return
	}
	up := parent(path)
	delete(t.s.Nodes, path)
	delete(t.s.children, path)
	delete(t.s.children[up], path[strings.LastIndexByte(path, '/')+1:])
	t.s.Nodes[up].Pzxid = t.zxid
	t.change(Deleted, path)
	t.change(ChildrenChanged, up)
}

func (t tree) change(k ChangeKind, path string) {
	t.s.changes = append(t.s.changes, Change{k, path})
}

func (s *State) link(path string) {
	up := parent(path)
	if s.children[up] == nil {
		s.children[up] = map[string]struct{}{}
	}
	s.children[up][path[strings.LastIndexByte(path, '/')+1:]] = struct{}{}
}

func parent(path string) string {
	return path[:max(1, strings.LastIndexByte(path, '/'))]
}

// Get returns a node's data and stat. The data must not be changed.
func (s State) Get(path string) ([]byte, Stat, bool) {
	n := s.Nodes[path]
	if n == nil {
		return nil, Stat{}, false
	}
	kids := int32(len(s.children[path]))
	return n.Data, Stat{
		Czxid: int64(n.Czxid), Mzxid: int64(n.Mzxid), Pzxid: int64(n.Pzxid), Ctime: n.Ctime, Mtime: n.Mtime,
		Version: n.Version, Cversion: 2*n.Creates - kids, // creations and deletions
		EphemeralOwner: n.Owner, DataLength: int32(len(n.Data)), NumChildren: kids,
	}, true
}

// Children are the names below path in byte order; none for a node that is not there.
func (s State) Children(path string) []string {
	names := make([]string, 0, len(s.children[path]))
	for name := range s.children[path] {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Changes are the effects of the event at Seq. They are no part of the state: a
// restored snapshot has none.
func (s State) Changes() []Change { return s.changes }

// UnmarshalJSON restores a snapshot.
func (s *State) UnmarshalJSON(data []byte) error {
	type plain State
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return err
	}
	s.children = map[string]map[string]struct{}{}
	for path := range s.Nodes {
		if path != "/" {
			s.link(path)
		}
	}
	return nil
}

// component says whether name can be one step of a path as ZooKeeper allows it.
func component(name string) bool {
	if name == "" || name == "." || name == ".." || !utf8.ValidString(name) {
		return false
	}
	for _, c := range name {
		if c == '/' || c <= 0x1f || (c >= 0x7f && c <= 0x9f) || (c >= 0xd800 && c <= 0xf8ff) || (c >= 0xfff0 && c <= 0xffff) {
			return false
		}
	}
	return true
}
