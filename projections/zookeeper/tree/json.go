package tree

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// JSONNode is one znode as people and hashes see it.
type JSONNode struct {
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

// WriteNodes writes the members of the object of nodes by path.
func (t *Tree) WriteNodes(out *bufio.Writer) error {
	type placed struct {
		path string
		id   uint32
	}
	all := make([]placed, 0, t.count)
	t.walk(func(id uint32) { all = append(all, placed{t.path(id), id}) })
	slices.SortFunc(all, func(a, b placed) int { return strings.Compare(a.path, b.path) })
	for i, p := range all {
		n, d, ref := t.nodes.at(p.id), t.dirOf(p.id), t.aclRef(p.id)
		v := JSONNode{
			Data: t.Data(p.id), Czxid: n.czxid, Mzxid: n.mzxid, Pzxid: d.pzxid, Ctime: n.ctime, Mtime: n.mtime,
			Version: n.version, Creates: d.creates, Owner: t.Owner(p.id), Aversion: ref.version,
		}
		if ref.list != openACL {
			v.ACL = t.acls.lists[ref.list].acl
		}
		path, err := Canonical(p.path)
		if err != nil {
			return err
		}
		node, err := Canonical(v)
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

// Canonical is v as a state is written to be hashed.
func Canonical(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// FromJSON is the tree of nodes by path and the open sessions.
func FromJSON(nodes map[string]JSONNode, sessions map[int64]Session) (*Tree, error) {
	t := newTree()
	if sessions != nil {
		t.sessions = sessions
	}
	if _, ok := nodes["/"]; !ok {
		return nil, errors.New("znode: a tree without its root")
	}
	for _, path := range slices.Sorted(maps.Keys(nodes)) { // parents first
		id, v := root, nodes[path]
		if path != "/" {
			i := strings.LastIndexByte(path, '/')
			name, up := path[i+1:], uint32(0)
			switch {
			case i == 0:
				up = root
			case i > 1: // "//a" has no parent
				up = t.Find(path[:i])
			}
			if !ValidName(name) || up == 0 || len(name)+len(v.Data) > MaxBlob {
				return nil, fmt.Errorf("znode: node %q cannot stand in the tree", path)
			}
			id = t.insert(up, name, v.Data)
		} else if len(v.Data) > 0 || v.Data == nil {
			t.Set(root, "/", v.Data)
		}
		t.restore(id, v)
	}
	t.journal, t.changes = nil, nil
	return t, nil
}

// restore gives a node just inserted its figures.
func (t *Tree) restore(id uint32, v JSONNode) {
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
