package znode

import (
	"bytes"
	"strings"

	znodepb "github.com/monolith-go/monolith/events/znode"
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
// holds is refused: there the mirror writes, and the bridge does not.
func (s *State) imported(m *znodepb.Imported) *Outcome {
	t := s.tree
	refuse := func(code int32) *Outcome { return &Outcome{Code: code} }
	parent, name, ok := splitPath(m.GetPath())
	if !ok || !validPath(m.GetPath()) || special(m.GetPath()) || strings.HasPrefix(m.GetPath(), "/@") {
		return refuse(CodeBadArguments)
	}
	id := t.find(m.GetPath())
	was, abroad := s.Imports[m.GetPath()]
	if id != 0 {
		owner := t.owner(id)
		_, ours := t.sessions[owner]
		switch {
		case isEphemeral(owner) && (ours || IsService(owner)) && !(abroad && was.Owner == owner):
			return refuse(CodeNoAuth)
		case m.GetKind() == znodepb.Imported_DELETED && t.dirOf(id).kids > 0:
			return refuse(CodeNotEmpty)
		}
	}
	if m.GetKind() == znodepb.Imported_DELETED {
		if id != 0 {
			t.remove(id, m.GetPath())
			delete(s.Imports, m.GetPath())
		}
		return &Outcome{}
	}
	if id != 0 && abroad && was.Czxid == m.GetCzxid() && was.Mzxid == m.GetMzxid() {
		return &Outcome{} // seen before
	}
	list, fine := fix(m.GetAcl(), nil)
	acl := openACL
	if len(m.GetAcl()) > 0 {
		if !fine {
			return refuse(CodeInvalidACL)
		}
		acl = t.acls.intern(list)
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
		id = t.create(up, m.GetPath(), name, m.GetData(), m.GetOwner(), acl)
	} else if !bytes.Equal(t.data(id), m.GetData()) {
		t.set(id, m.GetPath(), m.GetData())
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
