package tree

import "github.com/monolith-go/monolith/projections/zookeeper/wire"

// undo says how to take one operation back. Until an event is decided, nothing that an
// operation replaced or removed is given back to the arena or the slabs.
type undo struct {
	kind   OpKind // OpCreate, OpDelete, OpSetData or OpSetACL
	id     uint32
	node   node   // as it was: setData
	acl    aclRef // as it was: setACL
	parent dir    // figures as they were: create, delete
}

// Create adds a node at the event's zxid, with its owner and access list; without one,
// everybody may do everything.
func (t *Tree) Create(parent uint32, path, name string, data []byte, owner int64, list []wire.ACL) uint32 {
	acl := openACL
	if len(list) > 0 {
		acl = t.acls.intern(list)
	}
	return t.create(parent, path, name, data, owner, acl)
}

func (t *Tree) create(parent uint32, path, name string, data []byte, owner int64, acl uint32) uint32 {
	u := undo{kind: OpCreate, parent: t.dirOf(parent)}
	id := t.insert(parent, name, data)
	n := t.nodes.mut(id)
	n.czxid, n.mzxid, n.ctime, n.mtime = t.zxid, t.zxid, t.ms, t.ms
	t.own(id, owner)
	t.acls.retain(acl)
	t.restrict(id, aclRef{list: acl})
	d := t.mutDir(parent)
	d.creates++
	d.pzxid = t.zxid
	u.id = id
	t.journal = append(t.journal, u)
	t.change(Created, path, id)
	t.change(ChildrenChanged, Parent(path), parent)
	t.account(path, 1, int64(len(data)))
	return id
}

// Remove deletes a node without children.
func (t *Tree) Remove(id uint32, path string) {
	parent := t.nodes.at(id).parent
	t.journal = append(t.journal, undo{kind: OpDelete, id: id, parent: t.dirOf(parent)})
	t.unlink(id)
	t.mutDir(parent).pzxid = t.zxid
	t.change(Deleted, path, id)
	t.change(ChildrenChanged, Parent(path), parent)
	t.account(path, -1, -int64(t.nodes.at(id).dataLen))
}

// Set gives a node other data.
func (t *Tree) Set(id uint32, path string, data []byte) {
	was := *t.nodes.at(id)
	n := t.overwrite(id, data) // before the journal: an undo of what was not done would free its data
	t.journal = append(t.journal, undo{kind: OpSetData, id: id, node: was})
	n.mzxid, n.mtime = t.zxid, t.ms
	n.version++
	t.change(DataChanged, path, id)
	t.account(path, 0, int64(len(data))-int64(was.dataLen))
}

// overwrite gives a node other data. Those that it had are the caller's to give back.
func (t *Tree) overwrite(id uint32, data []byte) *node {
	name := t.name(id)
	ref, b := t.blobs.alloc(len(name) + len(data))
	copy(b[copy(b, name):], data)
	n := t.nodes.mut(id)
	n.blob, n.dataLen = ref, uint32(len(data))
	n.nameLen &^= noData
	if data == nil {
		n.nameLen |= noData
	}
	return n
}

// AdoptACL sets a node's access list and its version.
func (t *Tree) AdoptACL(id uint32, list []wire.ACL, version int32) {
	acl := t.acls.intern(list)
	t.setACL(id, acl)
	t.restrict(id, aclRef{list: acl, version: version})
}

// NumberACL sets the version of a node's access list.
func (t *Tree) NumberACL(id uint32, version int32) {
	t.restrict(id, aclRef{list: t.aclRef(id).list, version: version})
}

func (t *Tree) setACL(id uint32, acl uint32) {
	was := t.aclRef(id)
	t.journal = append(t.journal, undo{kind: OpSetACL, id: id, acl: was})
	t.acls.retain(acl)
	t.restrict(id, aclRef{list: acl, version: was.version + 1})
}

func (t *Tree) change(k ChangeKind, path string, id uint32) {
	t.changes = append(t.changes, Change{k, path, t.acls.lists[t.aclRef(id).list].acl})
}

// fresh is the room in which the next event's changes are told, unless a large event has
// made it large.
func (t *Tree) fresh() []Change {
	if cap(t.changes) > 1<<10 {
		return nil
	}
	return t.changes[:0]
}

// Commit makes what the journal holds final.
func (t *Tree) Commit() {
	for _, u := range t.journal {
		switch u.kind {
		case OpDelete:
			t.free(u.id)
		case OpSetData:
			if u.node.blob != 0 {
				t.blobs.release(u.node.blob, int(u.node.nameLen&nameMask+u.node.dataLen))
			}
		case OpSetACL:
			t.acls.release(u.acl.list)
		}
	}
	t.journal = t.journal[:0]
	t.tidy()
}

// Rollback takes everything back, last first, so that the event changed nothing.
func (t *Tree) Rollback() {
	for i := len(t.journal) - 1; i >= 0; i-- {
		u := t.journal[i]
		switch u.kind {
		case OpCreate:
			parent := t.nodes.at(u.id).parent
			t.unlink(u.id)
			t.free(u.id)
			t.figures(parent, u.parent)
		case OpDelete:
			t.link(u.id, string(t.name(u.id)))
			t.figures(t.nodes.at(u.id).parent, u.parent)
		case OpSetData:
			n := t.nodes.mut(u.id)
			t.blobs.release(n.blob, int(n.nameLen&nameMask+n.dataLen))
			n.blob, n.dataLen = u.node.blob, u.node.dataLen
			n.nameLen = n.nameLen&^noData | u.node.nameLen&noData
			n.mzxid, n.mtime, n.version = u.node.mzxid, u.node.mtime, u.node.version
		case OpSetACL:
			t.acls.release(t.aclRef(u.id).list)
			t.restrict(u.id, u.acl)
		}
	}
	t.journal = t.journal[:0]
	t.changes = t.changes[:0]
}

// figures restores what a creation or removal changed besides the list of children.
func (t *Tree) figures(id uint32, was dir) {
	d := t.mutDir(id)
	d.pzxid, d.creates = was.pzxid, was.creates
}
