package view

import (
	"bytes"
	"strings"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"

	"github.com/monolith-go/monolith/events/znode"
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

// Imported is what is known of a node that came from abroad; last says that nobody here
// has written it since.
func (s State) Imported(path string) (i Import, last, ok bool) {
	if i, ok = s.Imports[path]; !ok {
		return i, false, false
	}
	st, there := s.Stat(path)
	return i, there && uint64(st.Mzxid) == i.Seq && st.Version == i.Version, there
}

// imported makes the tree show what the bridge saw. What a service or a client of ours
// holds is refused: there the mirror writes, and the bridge does not. An access list
// comes with its version, so that both sides count alike: who counts further has set it
// last.
func (s *State) imported(m *znode.Imported) *Outcome {
	t := s.tree
	refuse := func(code wire.Code) *Outcome { return &Outcome{Code: code} }
	parent, name, ok := splitPath(m.GetPath())
	if !ok || !validPath(m.GetPath()) || special(m.GetPath()) || strings.HasPrefix(m.GetPath(), "/@") {
		return refuse(wire.BadArguments)
	}
	id := t.find(m.GetPath())
	was, abroad := s.Imports[m.GetPath()]
	if id != 0 {
		owner := t.owner(id)
		_, ours := t.sessions[owner]
		switch {
		case isEphemeral(owner) && (ours || IsService(owner)) && !(abroad && was.Owner == owner):
			return refuse(wire.NoAuth)
		case m.GetKind() == znode.Imported_DELETED && t.dirOf(id).kids > 0:
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
		t.adoptACL(id, list, m.GetAversion())
		return &Outcome{}
	case znode.Imported_DELETED:
		if id != 0 {
			t.remove(id, m.GetPath())
			delete(s.Imports, m.GetPath())
		}
		return &Outcome{}
	}
	if id != 0 && abroad && was.Czxid == m.GetCzxid() && was.Mzxid == m.GetMzxid() {
		return &Outcome{} // seen before
	}
	if len(m.GetAcl()) > 0 && !fine {
		return refuse(wire.InvalidACL)
	}
	if id != 0 && t.owner(id) != m.GetOwner() && t.dirOf(id).kids == 0 { // an owner never changes
		t.remove(id, m.GetPath())
		id = 0
	}
	if id == 0 {
		d := domain{s: s, tree: t}
		up := t.find(parent)
		if up == 0 {
			up = d.create(parent, []byte{}, 0)
		}
		if isEphemeral(t.owner(up)) {
			t.disown(up)
		}
		acl := openACL
		if len(list) > 0 {
			acl = t.acls.intern(list)
		}
		id = t.create(up, m.GetPath(), name, m.GetData(), m.GetOwner(), acl) // whoever may not read it hears nothing of it
		t.restrict(id, aclRef{list: acl, version: m.GetAversion()})
	} else {
		if len(list) > 0 {
			t.adoptACL(id, list, m.GetAversion())
		}
		if !bytes.Equal(t.data(id), m.GetData()) {
			t.set(id, m.GetPath(), m.GetData())
		}
	}
	if s.Imports == nil {
		s.Imports = map[string]Import{}
	}
	n := t.nodes.at(id)
	s.Imports[m.GetPath()] = Import{
		Czxid: m.GetCzxid(), Mzxid: m.GetMzxid(), Owner: m.GetOwner(), Seq: n.mzxid, Version: n.version,
	}
	return &Outcome{}
}

// foreignList is a list as the ensemble has it: nothing in it stands for something else,
// and who is known by a certificate or a ticket there is nobody here.
func foreignList(acl []*znode.ACL) ([]wire.ACL, bool) {
	var list []wire.ACL
	for _, a := range acl {
		switch e := (wire.ACL{Perms: a.GetPerms(), Scheme: a.GetScheme(), ID: a.GetId()}); e.Scheme {
		case "x509", "sasl":
			list = append(list, e)
		default:
			one, ok := fix([]*znode.ACL{a}, nil)
			if !ok {
				return nil, false
			}
			list = append(list, one...)
		}
	}
	return list, len(list) > 0
}

// adoptACL sets a node's list and its version.
func (t *tree) adoptACL(id uint32, list []wire.ACL, version int32) {
	acl := t.acls.intern(list)
	t.setACL(id, acl)
	t.restrict(id, aclRef{list: acl, version: version})
}

// forget drops what is remembered of nodes that an event of ours has removed.
func (s *State) forget(changes []Change) {
	if len(s.Imports) == 0 {
		return
	}
	for _, c := range changes {
		if c.Kind == Deleted {
			delete(s.Imports, c.Path)
		}
	}
}
