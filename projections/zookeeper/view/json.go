package view

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/projections/zookeeper/payload"

	"github.com/monolith-go/monolith/projections/internal/fold"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// jsonState is a State as people and hashes see it. Nodes, the largest part, are written
// one by one behind its other fields.
type jsonState struct {
	Seq        uint64                         `json:"seq"`
	Nodes      map[string]jsonNode            `json:"nodes,omitempty"` // read only
	Containers map[string]Member              `json:"containers"`
	Replicas   map[string]payload.ReplicaMeta `json:"replicas"`
	Sessions   map[int64]Session              `json:"sessions,omitempty"`
	Imports    map[string]Import              `json:"imports,omitempty"`
	Skipped    fold.Skipped                   `json:"skipped,omitempty"`
}

// jsonNode is one znode.
type jsonNode struct {
	Data     Bytes      `json:"data"`
	Czxid    uint64     `json:"czxid"` // sequence that created it
	Mzxid    uint64     `json:"mzxid"` // sequence that last wrote it
	Pzxid    uint64     `json:"pzxid"` // sequence that last changed its list of children
	Ctime    int64      `json:"ctime"` // Unix milliseconds, like Mtime
	Mtime    int64      `json:"mtime"`
	Version  int32      `json:"version"`            // writes since it was created
	Creates  int32      `json:"creates"`            // children ever created below it
	Owner    int64      `json:"owner,omitempty"`    // ephemeralOwner, 0: persistent
	ACL      []wire.ACL `json:"acl,omitempty"`      // absent: everybody may do everything
	Aversion int32      `json:"aversion,omitempty"` // writes of the ACL
}

// MarshalJSON writes the same bytes for the same state, however it came about.
func (s State) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	err := Freeze(s)(&out)
	return out.Bytes(), err
}

// Freeze takes the state as it is and returns what writes its canonical JSON, which may
// run while the state goes on, and must run once.
func Freeze(s State) func(io.Writer) error {
	t, release := s.tree.freeze()
	// Now: its maps are the state's.
	rest, err := canonical(jsonState{Containers: s.Containers, Replicas: s.Replicas, Sessions: t.sessions, Imports: s.Imports, Skipped: s.Skipped})
	return func(w io.Writer) error {
		defer release()
		if err != nil {
			return err
		}
		out := bufio.NewWriterSize(w, 64<<10)
		fmt.Fprintf(out, `{"seq":%d,"nodes":{`, s.Seq)
		if err := t.writeNodes(out); err != nil {
			return err
		}
		fmt.Fprintf(out, `},%s`, bytes.TrimPrefix(rest, []byte(`{"seq":0,`)))
		return out.Flush() // which has the first error of all of them
	}
}

// writeNodes writes the members of the object of nodes by path.
func (t *tree) writeNodes(out *bufio.Writer) error {
	type placed struct {
		path string
		id   uint32
	}
	all := make([]placed, 0, t.count)
	t.walk(func(id uint32) { all = append(all, placed{t.path(id), id}) })
	slices.SortFunc(all, func(a, b placed) int { return strings.Compare(a.path, b.path) })
	for i, p := range all {
		n, d, ref := t.nodes.at(p.id), t.dirOf(p.id), t.aclRef(p.id)
		v := jsonNode{
			Data: t.data(p.id), Czxid: n.czxid, Mzxid: n.mzxid, Pzxid: d.pzxid, Ctime: n.ctime, Mtime: n.mtime,
			Version: n.version, Creates: d.creates, Owner: t.owner(p.id), Aversion: ref.version,
		}
		if ref.list != openACL {
			v.ACL = t.acls.lists[ref.list].acl
		}
		path, err := canonical(p.path)
		if err != nil {
			return err
		}
		node, err := canonical(v)
		if err != nil {
			return err
		}
		if i > 0 {
			path = append([]byte{','}, path...)
		}
		if _, err := out.Write(append(append(path, ':'), node...)); err != nil {
			return err
		}
	}
	return nil
}

// canonical is v as follow.Canonical writes it.
func canonical(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// UnmarshalJSON restores a state.
func (s *State) UnmarshalJSON(data []byte) error {
	in := jsonState{Containers: map[string]Member{}, Replicas: map[string]payload.ReplicaMeta{}}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	t := newTree()
	if in.Sessions != nil {
		t.sessions = in.Sessions
	}
	if _, ok := in.Nodes["/"]; !ok {
		return errors.New("znode: a tree without its root")
	}
	for _, path := range slices.Sorted(maps.Keys(in.Nodes)) { // parents first
		id, v := root, in.Nodes[path]
		if path != "/" {
			i := strings.LastIndexByte(path, '/')
			name, up := path[i+1:], uint32(0)
			if i >= 0 {
				up = t.find(path[:max(i, 1)])
			}
			if !component(name) || up == 0 || len(name)+len(v.Data) > maxBlob {
				return fmt.Errorf("znode: node %q cannot stand in the tree", path)
			}
			id = t.insert(up, name, v.Data)
		} else if len(v.Data) > 0 || v.Data == nil {
			t.set(root, "/", v.Data)
		}
		t.restore(id, v)
	}
	t.journal, t.changes = nil, nil
	*s = State{Seq: in.Seq, Containers: in.Containers, Replicas: in.Replicas, Imports: in.Imports, Skipped: in.Skipped, tree: t}
	return nil
}

// restore gives a node just inserted its figures.
func (t *tree) restore(id uint32, v jsonNode) {
	n := t.nodes.mut(id)
	n.czxid, n.mzxid, n.ctime, n.mtime, n.version = v.Czxid, v.Mzxid, v.Ctime, v.Mtime, v.Version
	if n.dir != 0 || v.Creates != 0 || v.Pzxid != v.Czxid {
		d := t.mutDir(id)
		d.creates, d.pzxid = v.Creates, v.Pzxid
	}
	t.own(id, v.Owner)
	ref := aclRef{version: v.Aversion}
	if v.ACL != nil {
		ref.list = t.acls.intern(v.ACL)
		t.acls.retain(ref.list)
	}
	t.restrict(id, ref)
}
