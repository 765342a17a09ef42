package view

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

// maxBlob bounds a node's name and data together. What a client writes is less, and what
// a fact makes of its texts too, unless it is older than the rules that see to that.
const maxBlob = 15 << 16

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

// tree is the nodes, compact: a million of them with 100 bytes each take less than 200
// bytes apiece. One goroutine writes, and nobody reads meanwhile, except frozen copies.
type tree struct {
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

	tooLarge bool // a node that the event asks for is not made: no node is that large

	frozen *atomic.Int32 // copies being read; nil when none was made
	quota  uint32        // the node of that name, 0: not looked for yet

	memo
}

func newTree() *tree {
	t := &tree{
		owners: map[uint32]int64{}, ephemerals: map[int64]map[uint32]struct{}{},
		containers: map[uint32]struct{}{}, ttls: map[uint32]struct{}{},
		acls: newACLs(), aclOf: map[uint32]aclRef{}, sessions: map[int64]Session{},
		memo: newMemo(),
	}
	t.index.seed = maphash.MakeSeed()
	t.nodes.alloc()
	t.count = 1
	return t
}

// name and data share a blob, which the next Apply may reuse.
func (t *tree) name(id uint32) []byte {
	n := t.nodes.at(id)
	return t.blob(n)[:n.nameLen&nameMask]
}

func (t *tree) data(id uint32) []byte {
	n := t.nodes.at(id)
	switch {
	case n.nameLen&noData != 0:
		return nil
	case n.blob == 0:
		return []byte{}
	}
	return t.blob(n)[n.nameLen&nameMask:]
}

func (t *tree) blob(n *node) []byte {
	if n.blob == 0 {
		return nil
	}
	return t.blobs.bytes(n.blob, int(n.nameLen&nameMask+n.dataLen))
}

func (t *tree) child(parent uint32, name string) uint32 {
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

// find is the node at path, 0 when there is none.
func (t *tree) find(path string) uint32 {
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
func (t *tree) path(id uint32) string {
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

func (t *tree) dirOf(id uint32) dir {
	n := t.nodes.at(id)
	if n.dir == 0 {
		return dir{pzxid: n.czxid}
	}
	return *t.dirs.at(n.dir)
}

func (t *tree) mutDir(id uint32) *dir {
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
func (t *tree) insert(parent uint32, name string, data []byte) uint32 {
	id, _ := t.insertAny(parent, name, data)
	return id
}

// insertAny is insert where parent may have a child of that name: clash says that it has,
// or something of the same hash is there.
func (t *tree) insertAny(parent uint32, name string, data []byte) (id uint32, clash bool) {
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
func (t *tree) link(id uint32, name string) (clash bool) {
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
func (t *tree) siblings(parent uint32, name string) (count int) {
	s, h := t.index.hash(parent, name)
	mask := uint32(len(s.slots) - 1)
	for i := h & mask; s.slots[i].id != 0; i = (i + 1) & mask {
		if id := s.slots[i].id; s.slots[i].hash == h && t.nodes.at(id).parent == parent && string(t.name(id)) == name {
			count++
		}
	}
	return count
}

func (t *tree) unlink(id uint32) {
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
func (t *tree) own(id uint32, owner int64) {
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

func (t *tree) disown(id uint32) {
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

func (t *tree) owner(id uint32) int64 {
	if t.nodes.at(id).nameLen&hasOwner == 0 {
		return 0
	}
	return t.owners[id]
}

// isEphemeral says whether the node goes with its owner.
func isEphemeral(owner int64) bool {
	return owner != 0 && owner != containerOwner && owner&ttlOwner != ttlOwner
}

func (t *tree) aclRef(id uint32) aclRef {
	if t.nodes.at(id).nameLen&hasACL == 0 {
		return aclRef{}
	}
	return t.aclOf[id]
}

// restrict sets a node's ACL without taking or giving back a use of it.
func (t *tree) restrict(id uint32, ref aclRef) {
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
func (t *tree) free(id uint32) {
	t.disown(id)
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
func (t *tree) tidy() {
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
func (t *tree) walk(visit func(id uint32)) {
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

func (t *tree) stat(id uint32) wire.Stat {
	n, d := t.nodes.at(id), t.dirOf(id)
	return wire.Stat{
		Czxid: int64(n.czxid), Mzxid: int64(n.mzxid), Pzxid: int64(d.pzxid), Ctime: n.ctime, Mtime: n.mtime,
		Version: n.version, Cversion: 2*d.creates - d.kids, // creations and deletions
		Aversion: t.aclRef(id).version, EphemeralOwner: t.owner(id), DataLength: int32(n.dataLen), NumChildren: d.kids,
	}
}

// children are the names below a node, sorted.
func (t *tree) children(id uint32) []string {
	d := t.dirOf(id)
	names := make([]string, 0, d.kids)
	for c := d.first; c != 0; c = t.nodes.at(c).next {
		names = append(names, string(t.name(c)))
	}
	slices.Sort(names)
	return names
}

// freeze is a copy for reading that stays as it is while the tree goes on; release must
// be called when it is not read any more.
func (t *tree) freeze() (frozen *tree, release func()) {
	if t.frozen == nil {
		t.frozen = new(atomic.Int32)
	}
	copies := t.frozen
	copies.Add(1)
	f := &tree{
		nodes: t.nodes.freeze(), dirs: t.dirs.freeze(), blobs: t.blobs.freeze(), count: t.count,
		owners: cloneMap(t.owners), aclOf: cloneMap(t.aclOf), sessions: cloneMap(t.sessions),
		acls: t.acls.freeze(), zxid: t.zxid, ms: t.ms,
	}
	return f, func() { copies.Add(-1) }
}

// thaw takes back what frozen copies kept, once nobody reads them.
func (t *tree) thaw() {
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

// parentPath of an absolute path; that of "/" is "/".
func parentPath(path string) string { return path[:max(1, strings.LastIndexByte(path, '/'))] }
