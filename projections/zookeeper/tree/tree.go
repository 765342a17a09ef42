// Package tree is ZooKeeper's state machine: nodes with their versions, access lists, quotas
// and sessions, and proposals that are done as a whole or not at all, in little memory. It
// knows no log and no facts: view maps those onto it.
package tree

import (
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Owners that are no session, in a node's ephemeralOwner.
const (
	containerOwner = math.MinInt64
	ttlOwner       = -1 << 56 // its first byte; the time to live in milliseconds is in the last five
	maxTTL         = 1<<40 - 1
)

// MaxBlob bounds a node's name and data together. What a client writes is less, and what
// a fact makes of its texts too, unless it is older than the rules that see to that.
const MaxBlob = 15 << 16

// root is the node of "/"; 0 is no node.
const root uint32 = 1

// node is one znode in 64 bytes. What few nodes have is beside it: figures of those that
// had children in dirs, owners and ACLs in maps.
type node struct {
	czxid, mzxid uint64
	ctime, mtime int64
	parent       uint32
	next, prev   uint32 // siblings, in no order that matters
	dir          uint32 // 0: never had a child
	version      int32
	blob         uint32 // name, then data; 0: neither
	dataLen      uint32
	nameLen      uint32 // with the flags above it
}

const (
	nameMask = 1<<24 - 1
	unlinked = 1 << 28 // removed by the event that is being applied
	noData   = 1 << 29 // none at all, which ZooKeeper tells from empty
	hasOwner = 1 << 30
	hasACL   = 1 << 31
)

type dir struct {
	pzxid   uint64
	first   uint32
	kids    int32
	creates int32 // children ever created: the sequence numbers come from it
}

// Tree is the nodes, compact: a million of them with 100 bytes each take less than 200
// bytes apiece. One goroutine writes, and nobody reads meanwhile, except frozen copies.
type Tree struct {
	nodes slab[node]
	dirs  slab[dir]
	blobs arena
	index index
	count int // nodes

	owners     map[uint32]int64 // of nodes with hasOwner
	ephemerals map[int64]map[uint32]struct{}
	containers map[uint32]struct{}
	ttls       map[uint32]struct{}
	acls       acls
	aclOf      map[uint32]aclRef // of nodes with hasACL
	sessions   map[int64]Session

	zxid    uint64 // of the event that is being applied
	ms      int64  // its time
	changes []Change
	journal []undo

	frozen *atomic.Int32 // copies being read; nil when none was made
	quota  uint32        // the node of that name, 0: not looked for yet

	answers []answer // outcomes never given out
}

// IsService says whether an ephemeralOwner is one of a service, whose nodes no client
// removes or changes: ServiceOwner is its first byte.
func IsService(owner int64) bool { return uint64(owner)>>56 == ServiceOwner }

// ServiceOwner is the first byte of owners that are services, and of no session.
const ServiceOwner = 'M'

// New is an empty tree, as ZooKeeper creates it.
func New() *Tree {
	t := newTree()
	up := t.insert(root, "zookeeper", []byte{})
	t.insert(up, "quota", []byte{})
	t.restrict(t.insert(up, "config", []byte{}), aclRef{list: readOnlyACL, version: -1})
	return t
}

// Begin has what follows happen at zxid and at ms, in Unix milliseconds.
func (t *Tree) Begin(zxid uint64, ms int64) {
	t.zxid, t.ms, t.changes = zxid, ms, t.fresh()
}

// Changes are those since Begin, in the order in which watches fire. They are valid until
// the next Begin.
func (t *Tree) Changes() []Change { return t.changes }

// Kids is how many children a node has.
func (t *Tree) Kids(id uint32) int { return int(t.dirOf(id).kids) }

// HasSession says whether a session is open.
func (t *Tree) HasSession(id int64) bool { _, ok := t.sessions[id]; return ok }

func newTree() *Tree {
	t := &Tree{
		owners: map[uint32]int64{}, ephemerals: map[int64]map[uint32]struct{}{},
		containers: map[uint32]struct{}{}, ttls: map[uint32]struct{}{},
		acls: newACLs(), aclOf: map[uint32]aclRef{}, sessions: map[int64]Session{},
	}
	t.index.seed = maphash.MakeSeed()
	t.nodes.alloc()
	t.count = 1
	return t
}

// name and data share a blob, which the next Apply may reuse.
func (t *Tree) name(id uint32) []byte {
	n := t.nodes.at(id)
	return t.blob(n)[:n.nameLen&nameMask]
}

// Data are a node's, nil: none at all. They must neither be changed nor be used after the
// next event.
func (t *Tree) Data(id uint32) []byte {
	n := t.nodes.at(id)
	switch {
	case n.nameLen&noData != 0:
		return nil
	case n.blob == 0:
		return []byte{}
	}
	return t.blob(n)[n.nameLen&nameMask:]
}

func (t *Tree) blob(n *node) []byte {
	if n.blob == 0 {
		return nil
	}
	return t.blobs.bytes(n.blob, int(n.nameLen&nameMask+n.dataLen))
}

func (t *Tree) child(parent uint32, name string) uint32 {
	s, h := t.index.hash(parent, name)
	if len(s.slots) == 0 {
		return 0
	}
	mask := uint32(len(s.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch v := s.slots[i]; {
		case v.id == 0:
			return 0
		case v.hash == h:
			n := t.nodes.at(v.id)
			if size := n.nameLen & nameMask; n.parent == parent && int(size) == len(name) && string(t.blobs.bytes(n.blob, int(size))) == name {
				return v.id
			}
		}
	}
}

// Find is the node at path, 0 when there is none.
func (t *Tree) Find(path string) uint32 {
	if path == "/" {
		return root
	}
	if path == "" || path[0] != '/' {
		return 0
	}
	id, rest := root, path[1:]
	for id != 0 {
		i := strings.IndexByte(rest, '/')
		if i < 0 {
			return t.child(id, rest)
		}
		id = t.child(id, rest[:i])
		rest = rest[i+1:]
	}
	return 0
}

// path of a node.
func (t *Tree) path(id uint32) string {
	if id == root {
		return "/"
	}
	size := 0
	for n := id; n != root; n = t.nodes.at(n).parent {
		size += 1 + len(t.name(n))
	}
	b := make([]byte, size)
	for n := id; n != root; n = t.nodes.at(n).parent {
		name := t.name(n)
		size -= len(name)
		copy(b[size:], name)
		size--
		b[size] = '/'
	}
	return string(b)
}

func (t *Tree) dirOf(id uint32) dir {
	n := t.nodes.at(id)
	if n.dir == 0 {
		return dir{pzxid: n.czxid}
	}
	return *t.dirs.at(n.dir)
}

func (t *Tree) mutDir(id uint32) *dir {
	n := t.nodes.at(id)
	if n.dir == 0 {
		n = t.nodes.mut(id)
		n.dir = t.dirs.alloc()
		d := t.dirs.mut(n.dir)
		d.pzxid = n.czxid
		return d
	}
	return t.dirs.mut(n.dir)
}

// insert puts a bare node below parent, which has no child of that name.
func (t *Tree) insert(parent uint32, name string, data []byte) uint32 {
	id, _ := t.insertAny(parent, name, data)
	return id
}

// insertAny is insert where parent may have a child of that name: clash says that it has,
// or something of the same hash is there.
func (t *Tree) insertAny(parent uint32, name string, data []byte) (id uint32, clash bool) {
	id = t.nodes.alloc()
	n := t.nodes.mut(id)
	n.parent = parent
	n.nameLen, n.dataLen = uint32(len(name)), uint32(len(data))
	if data == nil {
		n.nameLen |= noData
	}
	var b []byte
	n.blob, b = t.blobs.alloc(len(name) + len(data))
	copy(b[copy(b, name):], data)
	return id, t.link(id, name)
}

// link makes a node findable and one of its parent's children.
func (t *Tree) link(id uint32, name string) (clash bool) {
	n := t.nodes.mut(id)
	d := t.mutDir(n.parent)
	n.next, n.prev = d.first, 0
	n.nameLen &^= unlinked
	if d.first != 0 {
		t.nodes.mut(d.first).prev = id
	}
	d.first = id
	d.kids++
	t.count++
	return t.index.insert(n.parent, name, id)
}

// siblings is how many children of that name parent has; more than one are a mistake.
func (t *Tree) siblings(parent uint32, name string) (count int) {
	s, h := t.index.hash(parent, name)
	mask := uint32(len(s.slots) - 1)
	for i := h & mask; s.slots[i].id != 0; i = (i + 1) & mask {
		if id := s.slots[i].id; s.slots[i].hash == h && t.nodes.at(id).parent == parent && string(t.name(id)) == name {
			count++
		}
	}
	return count
}

func (t *Tree) unlink(id uint32) {
	t.nodes.mut(id).nameLen |= unlinked
	n := *t.nodes.at(id)
	d := t.mutDir(n.parent)
	if n.prev == 0 {
		d.first = n.next
	} else {
		t.nodes.mut(n.prev).next = n.next
	}
	if n.next != 0 {
		t.nodes.mut(n.next).prev = n.prev
	}
	d.kids--
	t.index.remove(n.parent, string(t.name(id)), id)
	t.count--
}

// own notes the owner of a new node.
func (t *Tree) own(id uint32, owner int64) {
	if owner == 0 {
		return
	}
	t.nodes.mut(id).nameLen |= hasOwner
	t.owners[id] = owner
	switch {
	case owner == containerOwner:
		t.containers[id] = struct{}{}
	case owner&ttlOwner == ttlOwner:
		t.ttls[id] = struct{}{}
	default:
		if t.ephemerals[owner] == nil {
			t.ephemerals[owner] = map[uint32]struct{}{}
		}
		t.ephemerals[owner][id] = struct{}{}
	}
}

// Disown leaves a node to nobody.
func (t *Tree) Disown(id uint32) {
	n := t.nodes.at(id)
	if n.nameLen&hasOwner == 0 {
		return
	}
	t.nodes.mut(id).nameLen &^= hasOwner
	owner := t.owners[id]
	delete(t.owners, id)
	delete(t.containers, id)
	delete(t.ttls, id)
	if e := t.ephemerals[owner]; e != nil {
		if delete(e, id); len(e) == 0 {
			delete(t.ephemerals, owner)
		}
	}
}

// Owner is a node's ephemeralOwner, 0: nobody.
func (t *Tree) Owner(id uint32) int64 {
	if t.nodes.at(id).nameLen&hasOwner == 0 {
		return 0
	}
	return t.owners[id]
}

// IsEphemeral says whether a node goes with its ephemeralOwner; other owners mark
// containers and times to live.
func IsEphemeral(owner int64) bool {
	return owner != 0 && owner != containerOwner && owner&ttlOwner != ttlOwner
}

func (t *Tree) aclRef(id uint32) aclRef {
	if t.nodes.at(id).nameLen&hasACL == 0 {
		return aclRef{}
	}
	return t.aclOf[id]
}

// restrict sets a node's ACL without taking or giving back a use of it.
func (t *Tree) restrict(id uint32, ref aclRef) {
	n := t.nodes.mut(id)
	if ref == (aclRef{}) {
		n.nameLen &^= hasACL
		delete(t.aclOf, id)
		return
	}
	n.nameLen |= hasACL
	t.aclOf[id] = ref
}

// free gives back all that a node held which is linked no more.
func (t *Tree) free(id uint32) {
	t.Disown(id)
	t.acls.release(t.aclRef(id).list)
	delete(t.aclOf, id)
	n := t.nodes.at(id)
	if n.blob != 0 {
		t.blobs.release(n.blob, int(n.nameLen&nameMask+n.dataLen))
	}
	if n.dir != 0 {
		t.dirs.release(n.dir)
	}
	t.nodes.release(id)
}

// tidy copies the blobs together once most of the arena is unused.
func (t *Tree) tidy() {
	if !t.blobs.wasted() {
		return
	}
	var fresh arena
	t.walk(func(id uint32) {
		old := t.blob(t.nodes.at(id))
		if old == nil {
			return
		}
		ref, b := fresh.alloc(len(old))
		copy(b, old)
		t.nodes.mut(id).blob = ref
	})
	t.blobs = fresh
}

// walk visits every node, parents before their children.
func (t *Tree) walk(visit func(id uint32)) {
	for id := root; id != 0; {
		visit(id)
		if d := t.dirOf(id); d.first != 0 {
			id = d.first
			continue
		}
		for id != root && t.nodes.at(id).next == 0 {
			id = t.nodes.at(id).parent
		}
		id = t.nodes.at(id).next
	}
}

// StatOf is a node's Stat.
func (t *Tree) StatOf(id uint32) wire.Stat {
	n, d := t.nodes.at(id), t.dirOf(id)
	return wire.Stat{
		Czxid: int64(n.czxid), Mzxid: int64(n.mzxid), Pzxid: int64(d.pzxid), Ctime: n.ctime, Mtime: n.mtime,
		Version: n.version, Cversion: 2*d.creates - d.kids, // creations and deletions
		Aversion: t.aclRef(id).version, EphemeralOwner: t.Owner(id), DataLength: int32(n.dataLen), NumChildren: d.kids,
	}
}

// Names are the names below a node, sorted.
func (t *Tree) Names(id uint32) []string {
	d := t.dirOf(id)
	names := make([]string, 0, d.kids)
	for c := d.first; c != 0; c = t.nodes.at(c).next {
		names = append(names, string(t.name(c)))
	}
	slices.Sort(names)
	return names
}

// Freeze is a copy for reading that stays as it is while the tree goes on; release must
// be called when it is not read any more.
func (t *Tree) Freeze() (frozen *Tree, release func()) {
	if t.frozen == nil {
		t.frozen = new(atomic.Int32)
	}
	copies := t.frozen
	copies.Add(1)
	f := &Tree{
		nodes: t.nodes.freeze(), dirs: t.dirs.freeze(), blobs: t.blobs.freeze(), count: t.count,
		owners: cloneMap(t.owners), aclOf: cloneMap(t.aclOf), sessions: cloneMap(t.sessions),
		acls: t.acls.freeze(), zxid: t.zxid, ms: t.ms,
	}
	return f, func() { copies.Add(-1) }
}

// Thaw takes back what frozen copies kept, once nobody reads them.
func (t *Tree) Thaw() {
	if t.frozen == nil || t.frozen.Load() != 0 {
		return
	}
	t.frozen = nil
	t.nodes.thaw()
	t.dirs.thaw()
	t.blobs.thaw()
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// Parent is that of an absolute path; that of "/" is "/".
func Parent(path string) string { return path[:max(1, strings.LastIndexByte(path, '/'))] }
