package view

import (
	"bytes"
	"strings"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Import is what the tree remembers of a node whose data came from a foreign ensemble:
// zxids and session are that ensemble's. It goes with the node.
type Import struct {
	Czxid   int64  `json:"czxid"`
	Mzxid   int64  `json:"mzxid"`
	Owner   int64  `json:"owner,omitempty"` // the session that holds it there; 0: nobody
	Seq     uint64 `json:"seq"`             // of the event that wrote it here, with the version it had then
	Version int32  `json:"version"`
}

// Imported is what is known of a node that came from the ensemble; last says that nobody here
// has written it since.
func (s State) Imported(path string) (i Import, last, ok bool) {
	if i, ok = s.Imports[path]; !ok {
		return i, false, false
	}
	st, there := s.Stat(path)
	return i, uint64(st.Mzxid) == i.Seq && st.Version == i.Version, there
}

// imported makes the tree show what the bridge saw. What a service or a client of ours
// holds is refused: there the mirror writes, and the bridge does not. An access list
// comes with its version, so that both sides count alike: who counts further has set it
// last.
func (s *State) imported(m *znode.Imported) *tree.Outcome {
	t := s.nodes
	refuse := func(code wire.Code) *tree.Outcome { return &tree.Outcome{Code: code} }
	parent, name, ok := tree.SplitPath(m.GetPath())
	if !ok || !tree.ValidPath(m.GetPath()) || tree.Special(m.GetPath()) || strings.HasPrefix(m.GetPath(), "/@") {
		return refuse(wire.BadArguments)
	}
	id := t.Find(m.GetPath())
	was, external := s.Imports[m.GetPath()]
	if id != 0 {
		owner := t.Owner(id) // a session from the ensemble may have the number of one of ours
		switch {
		case !external && (t.HasSession(owner) || tree.IsService(owner)):
			return refuse(wire.NoAuth)
		case m.GetKind() == znode.Imported_DELETED && t.Kids(id) > 0:
			return refuse(wire.NotEmpty)
		}
	}
	list, fine := foreignList(m.GetAcl())
	switch m.GetKind() {
	case znode.Imported_ACL_SET:
		switch {
		case id == 0:
			return refuse(wire.NoNode)
		case !fine:
			return refuse(wire.InvalidACL)
		}
		t.AdoptACL(id, list, m.GetAversion())
		return &tree.Outcome{}
	case znode.Imported_DELETED:
		if id != 0 {
			t.Remove(id, m.GetPath())
			delete(s.Imports, m.GetPath())
		}
		return &tree.Outcome{}
	}
	if external && was.Czxid == m.GetCzxid() && was.Mzxid == m.GetMzxid() {
		return &tree.Outcome{} // seen before
	}
	if len(m.GetAcl()) > 0 && !fine {
		return refuse(wire.InvalidACL)
	}
	if id != 0 && t.Owner(id) != m.GetOwner() && t.Kids(id) == 0 { // an owner never changes
		t.Remove(id, m.GetPath())
		id = 0
	}
	if id == 0 {
		d := domain{s: s, tree: t}
		up := t.Find(parent)
		if up == 0 {
			up = d.create(parent, []byte{}, 0)
		}
		if tree.IsEphemeral(t.Owner(up)) {
			t.Disown(up)
		}
		id = t.Create(up, m.GetPath(), name, m.GetData(), m.GetOwner(), list) // whoever may not read it hears nothing of it
		t.NumberACL(id, m.GetAversion())
	} else {
		if len(list) > 0 {
			t.AdoptACL(id, list, m.GetAversion())
		}
		if !bytes.Equal(t.Data(id), m.GetData()) {
			t.Set(id, m.GetPath(), m.GetData())
		}
	}
	if s.Imports == nil {
		s.Imports = map[string]Import{}
	}
	st := t.StatOf(id)
	s.Imports[m.GetPath()] = Import{
		Czxid: m.GetCzxid(), Mzxid: m.GetMzxid(), Owner: m.GetOwner(), Seq: uint64(st.Mzxid), Version: st.Version,
	}
	return &tree.Outcome{}
}

// foreignList is a list as the ensemble has it: nothing in it stands for something else,
// and who is known by a certificate or a ticket there is nobody here.
func foreignList(acl []*znode.ACL) ([]wire.ACL, bool) {
	var list []wire.ACL
	for _, e := range appendACL(nil, acl) {
		switch e.Scheme {
		case "x509", "sasl":
			list = append(list, e)
		default:
			one, ok := tree.FixACL([]wire.ACL{e}, nil)
			if !ok {
				return nil, false
			}
			list = append(list, one...)
		}
	}
	return list, len(list) > 0
}

// forget drops what is remembered of nodes that an event of ours has removed.
func (s *State) forget(changes []tree.Change) {
	if len(s.Imports) == 0 {
		return
	}
	for _, c := range changes {
		if c.Kind == tree.Deleted {
			delete(s.Imports, c.Path)
		}
	}
}
