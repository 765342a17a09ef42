// Package offheap holds large arrays of numbers outside the Go heap where the system allows it,
// in huge pages, so that the collector neither scans them nor waits for them.
package offheap

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

// Arena is where the arrays of one owner lie: from a few pages on outside the Go heap where the
// system allows it, in huge pages; the others on the heap, without pointers in them. Nothing is
// handed back to the system as addresses while the owner lives, so that a reader that
// looks where an array was a moment ago reads something, and then finds out.
type Arena struct {
	mu     sync.Mutex
	mapped []mapping             // what Release gives back when the owner is collected
	idle   map[uintptr][]mapping // by size: dropped arrays, read as zeros, to be used again
	slab   mapping               // what middling arrays are cut from, to share huge pages
	bytes  atomic.Int64          // held at present
}

// mapping is one range of addresses from the system.
type mapping struct {
	start, bytes uintptr
	at           unsafe.Pointer // the part of it in use
}

// Block is an array of zeros, aligned to a cache line.
type Block struct {
	At    unsafe.Pointer
	Bytes uintptr
	heap  []uint64 // what keeps it alive, for one on the Go heap
	m     mapping  // for one outside
}

// Get allocates. Blocks of mapFrom bytes and more come from the system where it has any
// to give; huge asks it for huge pages.
func (m *Arena) Get(bytes uintptr, huge bool) Block {
	m.bytes.Add(int64(bytes))
	if bytes >= mapFrom {
		if p, ok := m.fromSystem(bytes, huge); ok {
			return Block{At: p.at, Bytes: bytes, m: p}
		}
	}
	heap := make([]uint64, (bytes+line-1)/8+line/8)
	at := unsafe.Pointer(&heap[0])
	if odd := uintptr(at) % line; odd != 0 {
		at = unsafe.Add(at, line-odd)
	}
	return Block{At: at, Bytes: bytes, heap: heap}
}

// fromSystem is Get for blocks that the system gives: again one that was dropped, or a
// piece of a slab, or a mapping of its own.
func (m *Arena) fromSystem(bytes uintptr, huge bool) (mapping, bool) {
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

// Bytes is what is held at present.
func (m *Arena) Bytes() int64 { return m.bytes.Load() }

// Drop ends the use of b. Its addresses stay readable.
func (m *Arena) Drop(b Block) {
	if b.At == nil {
		return
	}
	m.bytes.Add(-int64(b.Bytes))
	if b.heap != nil {
		return // the collector sees to it; the Go heap is never unmapped
	}
	forget(b.m)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle == nil {
		m.idle = map[uintptr][]mapping{}
	}
	m.idle[b.Bytes] = append(m.idle[b.Bytes], b.m)
}

// Release gives everything back. Nobody may be looking any more.
func (m *Arena) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.mapped {
		unmap(p)
	}
	m.mapped, m.idle, m.slab = nil, nil, mapping{}
}

// Region is a growing array of elements of one size, in chunks that never move.
type Region struct {
	mem   *Arena
	size  uintptr // bytes of an element
	shift uint32  // log2 of the elements of a chunk

	mu     sync.Mutex
	blocks []Block
	chunks atomic.Pointer[[]unsafe.Pointer] // copied to grow: a reader keeps the one it took
}

// NewRegion is an empty region of elements of size bytes.
func NewRegion(mem *Arena, size uintptr) *Region {
	r := &Region{mem: mem, size: size}
	for r.size<<(r.shift+1) <= ChunkBytes {
		r.shift++
	}
	r.chunks.Store(new([]unsafe.Pointer))
	return r
}

// Chunks are where the elements lie now: element i in chunk i>>Shift. They stay good when the
// region grows.
func (r *Region) Chunks() []unsafe.Pointer { return *r.chunks.Load() }

// Shift is log2 of the elements of a chunk.
func (r *Region) Shift() uint32 { return r.shift }

// Size is that of an element, in bytes.
func (r *Region) Size() uintptr { return r.size }

// At is element i, which Ensure has seen.
func (r *Region) At(i uint32) unsafe.Pointer {
	chunks := *r.chunks.Load()
	return unsafe.Add(chunks[i>>r.shift], uintptr(i&(1<<r.shift-1))*r.size)
}

// Ensure makes element i exist. It allocates at most the chunks up to i.
func (r *Region) Ensure(i uint32) {
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
		b := r.mem.Get(r.size<<r.shift, len(chunks) > 0)
		r.blocks = append(r.blocks, b)
		chunks = append(chunks, b.At)
	}
	r.chunks.Store(&chunks)
}

// Clear makes every element zero. Who reads meanwhile gets either.
func (r *Region) Clear() {
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
