package table

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	line     = 64      // bytes of a cache line
	hugePage = 2 << 20 // bytes
	page     = 4 << 10 // bytes, of what forget deals in

	slabBytes = 4 << 20
)

// memory is where a table's arrays lie: from a few pages on outside the Go heap where the
// system allows it, in huge pages; the others on the heap, without pointers in them. Nothing is
// handed back to the system as addresses while the table lives, so that a reader that
// looks where an array was a moment ago reads something, and then finds out.
type memory struct {
	mu     sync.Mutex
	mapped []mapping             // what release gives back when the table is collected
	idle   map[uintptr][]mapping // by size: dropped arrays, read as zeros, to be used again
	slab   mapping               // what middling arrays are cut from, to share huge pages
	bytes  atomic.Int64          // held at present
}

// mapping is one range of addresses from the system.
type mapping struct {
	start, bytes uintptr
	at           unsafe.Pointer // the part of it in use
}

// block is an array of zeros, aligned to a cache line.
type block struct {
	at    unsafe.Pointer
	bytes uintptr
	heap  []uint64 // what keeps it alive, for one on the Go heap
	m     mapping  // for one outside
}

// get allocates. Blocks of mapFrom bytes and more come from the system where it has any
// to give; huge asks it for huge pages.
func (m *memory) get(bytes uintptr, huge bool) block {
	m.bytes.Add(int64(bytes))
	if bytes >= mapFrom {
		if p, ok := m.fromSystem(bytes, huge); ok {
			return block{at: p.at, bytes: bytes, m: p}
		}
	}
	heap := make([]uint64, (bytes+line-1)/8+line/8)
	at := unsafe.Pointer(&heap[0])
	if odd := uintptr(at) % line; odd != 0 {
		at = unsafe.Add(at, line-odd)
	}
	return block{at: at, bytes: bytes, heap: heap}
}

// fromSystem is get for blocks that the system gives: again one that was dropped, or a
// piece of a slab, or a mapping of its own.
func (m *memory) fromSystem(bytes uintptr, huge bool) (mapping, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if idle := m.idle[bytes]; len(idle) > 0 {
		p := idle[len(idle)-1]
		m.idle[bytes] = idle[:len(idle)-1]
		return p, true
	}
	if !huge || bytes > slabBytes/4 {
		p, ok := mapAnonymous(bytes, huge)
		if ok {
			m.mapped = append(m.mapped, p)
		}
		return p, ok
	}
	whole := (bytes + page - 1) &^ (page - 1)
	if m.slab.bytes < whole {
		p, ok := mapAnonymous(slabBytes, true)
		if !ok {
			return mapping{}, false
		}
		m.mapped = append(m.mapped, p)
		m.slab = mapping{uintptr(p.at), slabBytes, p.at}
	}
	p := mapping{m.slab.start, whole, m.slab.at}
	m.slab = mapping{p.start + whole, m.slab.bytes - whole, unsafe.Add(p.at, whole)}
	return p, true
}

// drop ends the use of b. Its addresses stay readable.
func (m *memory) drop(b block) {
	if b.at == nil {
		return
	}
	m.bytes.Add(-int64(b.bytes))
	if b.heap != nil {
		return // the collector sees to it; the Go heap is never unmapped
	}
	forget(b.m)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle == nil {
		m.idle = map[uintptr][]mapping{}
	}
	m.idle[b.bytes] = append(m.idle[b.bytes], b.m)
}

// release gives everything back. Nobody may be looking any more.
func (m *memory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.mapped {
		unmap(p)
	}
	m.mapped, m.idle, m.slab = nil, nil, mapping{}
}

// region is a growing array of elements of one size, in chunks that never move.
type region struct {
	mem   *memory
	size  uintptr // bytes of an element
	shift uint32  // log2 of the elements of a chunk

	mu     sync.Mutex
	blocks []block
	chunks atomic.Pointer[[]unsafe.Pointer] // copied to grow: a reader keeps the one it took
}

func newRegion(mem *memory, size uintptr) *region {
	r := &region{mem: mem, size: size}
	for r.size<<(r.shift+1) <= chunkBytes {
		r.shift++
	}
	r.chunks.Store(new([]unsafe.Pointer))
	return r
}

// at is element i, which ensure has seen.
func (r *region) at(i uint32) unsafe.Pointer {
	chunks := *r.chunks.Load()
	return unsafe.Add(chunks[i>>r.shift], uintptr(i&(1<<r.shift-1))*r.size)
}

// ensure makes element i exist. It allocates at most the chunks up to i.
func (r *region) ensure(i uint32) {
	if int(i>>r.shift) < len(*r.chunks.Load()) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := *r.chunks.Load()
	if int(i>>r.shift) < len(old) {
		return
	}
	chunks := append(make([]unsafe.Pointer, 0, 2*len(old)+2), old...)
	for len(chunks) <= int(i>>r.shift) {
		// The first chunk stays in small pages: most tables are small.
		b := r.mem.get(r.size<<r.shift, len(chunks) > 0)
		r.blocks = append(r.blocks, b)
		chunks = append(chunks, b.at)
	}
	r.chunks.Store(&chunks)
}

// clear makes every element zero. Who reads meanwhile gets either.
func (r *region) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.blocks {
		if b.heap != nil {
			clear(b.heap)
		} else {
			forget(b.m)
		}
	}
}
