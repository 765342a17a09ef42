// Package powercut is a file system that forgets what was not synced, for tests of what a
// machine without power loses. Processes write to it as to any other; at a cut only what
// they have synced is left, down to the names of files.
package powercut

import (
	"maps"
	"math/rand/v2"
	"path"
	"sync"
	"time"
)

// Policy says when the name of a file is on disk.
type Policy int

const (
	// Journal is what ext4, XFS and btrfs do: any fsync also commits every creation, renaming
	// and removal before it.
	Journal Policy = iota
	// Strict is POSIX to the letter: a name is on disk after an fsync of its directory alone.
	Strict
)

// Residue says what is left at a cut of what was not synced.
type Residue int

const (
	// Nothing is left of it.
	Nothing Residue = iota
	// Some of it is left: pages here and there, some of them torn, sizes with or without
	// them, and the first so many changes of names.
	Some
)

const (
	pageSize   = 4096
	sectorSize = 512
)

// node is a file, a directory or a socket, as processes see it and as a cut would leave it.
type node struct {
	ino   uint64
	mode  uint32 // type and permissions
	links int
	named time.Time // when its entries last changed

	data  []byte
	kept  []byte         // data as of the last sync
	dirty map[int64]bool // pages that differ from kept

	entries map[string]*node
	synced  map[string]*node // entries as a cut would leave them
}

func (n *node) isDir() bool { return n.synced != nil }

// step is one name that changes; to is nil when it goes.
type step struct {
	dir  *node
	name string
	to   *node
}

// disk is the tree. It knows nothing of mounts.
type disk struct {
	policy Policy

	mu      sync.Mutex
	root    *node
	next    uint64
	pending [][]step // changes of names that are not on disk, oldest first; each is atomic
	cut     chan struct{}
}

func newDisk(p Policy) *disk {
	d := &disk{policy: p}
	d.root = d.node(dirType | 0o755)
	return d
}

// Types of a node, as in stat.
const (
	typeMask = 0o170000
	dirType  = 0o040000
)

func (d *disk) node(mode uint32) *node {
	d.next++
	n := &node{ino: d.next, mode: mode, links: 1, dirty: map[int64]bool{}}
	if mode&typeMask == dirType {
		n.entries, n.synced = map[string]*node{}, map[string]*node{}
	}
	return n
}

// rename applies steps to what processes see, and notes them as not yet on disk. The
// caller holds mu.
func (d *disk) rename(steps ...step) {
	for _, s := range steps {
		s.apply((*node).live)
		s.dir.named = time.Now()
	}
	d.pending = append(d.pending, steps)
}

func (n *node) live() map[string]*node  { return n.entries }
func (n *node) kepts() map[string]*node { return n.synced }

func (s step) apply(of func(*node) map[string]*node) {
	if s.to == nil {
		delete(of(s.dir), s.name)
	} else {
		of(s.dir)[s.name] = s.to
	}
}

// write changes n's data. The caller holds mu.
func (d *disk) write(n *node, data []byte, off int64) {
	end := off + int64(len(data))
	if end > int64(len(n.data)) {
		d.resize(n, end)
	}
	copy(n.data[off:end], data)
	n.touch(off, end)
}

// touch marks the pages of [from, to) as not synced.
func (n *node) touch(from, to int64) {
	for p := from / pageSize; p*pageSize < to; p++ {
		n.dirty[p] = true
	}
}

// resize changes n's size. The caller holds mu.
func (d *disk) resize(n *node, size int64) {
	was := int64(len(n.data))
	if size > int64(cap(n.data)) {
		grown := make([]byte, size, size+size/2)
		copy(grown, n.data)
		n.data = grown
	} else {
		n.data = n.data[:size]
		if size > was {
			clear(n.data[was:])
		}
	}
	n.touch(min(was, size), max(was, size))
}

// sync puts on disk what an fsync of n promises. It does not return once power is cut,
// until the processes have been killed; false then.
func (d *disk) sync(n *node) bool {
	d.mu.Lock()
	if d.cut != nil {
		over := d.cut
		d.mu.Unlock()
		<-over
		return false
	}
	defer d.mu.Unlock()
	n.keep(func(int64) int { return pageSize }, true)
	var left [][]step
	for _, change := range d.pending {
		if d.policy == Journal || concerns(change, n) {
			for _, s := range change {
				s.apply((*node).kepts)
			}
			continue
		}
		left = append(left, change)
	}
	d.pending = left
	return true
}

func concerns(change []step, dir *node) bool {
	for _, s := range change {
		if s.dir == dir {
			return true
		}
	}
	return false
}

// unsynced lists the paths of changes that are not on disk, but for those in folders that
// are gone, which nobody can sync any more. The caller holds mu.
func (d *disk) unsynced() (paths []string) {
	at := map[*node]string{}
	var walk func(*node, string)
	walk = func(n *node, to string) {
		at[n] = to
		for name, c := range n.entries {
			if c.isDir() {
				walk(c, path.Join(to, name))
			}
		}
	}
	walk(d.root, "")
	for _, change := range d.pending {
		for _, s := range change {
			if to, there := at[s.dir]; there {
				paths = append(paths, path.Join(to, s.name))
				break
			}
		}
	}
	return paths
}

// keep puts the first part(page) bytes of each dirty page on disk, and, if asked, the size.
func (n *node) keep(part func(page int64) int, size bool) {
	if size {
		switch {
		case len(n.data) <= len(n.kept):
			n.kept = n.kept[:len(n.data)]
		default:
			n.kept = append(n.kept, make([]byte, len(n.data)-len(n.kept))...)
		}
	}
	for p := range n.dirty {
		from := p * pageSize
		to := min(from+int64(part(p)), int64(len(n.data)), int64(len(n.kept)))
		if from < to {
			copy(n.kept[from:to], n.data[from:to])
		}
	}
	clear(n.dirty)
}

// after is the disk as it is found once power is back. The caller holds mu.
func (d *disk) after(r Residue, rng *rand.Rand) *disk {
	if r == Some {
		for _, change := range d.pending[:rng.IntN(len(d.pending)+1)] {
			for _, s := range change {
				s.apply((*node).kepts)
			}
		}
	}
	out := newDisk(d.policy)
	copies := map[*node]*node{}
	var image func(*node) *node
	image = func(n *node) *node {
		if c := copies[n]; c != nil {
			c.links++
			return c
		}
		if r == Some && len(n.dirty) > 0 {
			n.keep(func(int64) int {
				switch rng.IntN(4) {
				case 0, 1:
					return 0
				case 2:
					return sectorSize * rng.IntN(pageSize/sectorSize)
				}
				return pageSize
			}, rng.IntN(2) == 0)
		}
		c := out.node(n.mode)
		copies[n] = c
		c.data = append([]byte(nil), n.kept...)
		c.kept = append([]byte(nil), n.kept...)
		for name, child := range n.synced {
			c.synced[name] = image(child)
		}
		if n.isDir() {
			c.entries = maps.Clone(c.synced)
		}
		return c
	}
	out.root = image(d.root)
	return out
}
