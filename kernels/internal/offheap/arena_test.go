package offheap

import (
	"slices"
	"testing"
	"unsafe"
)

// A block is zeros, begins with a cache line and has as many bytes as were asked for,
// again when it is used again.
func TestBlocks(t *testing.T) {
	m := &Arena{}
	defer m.Release()
	held := int64(0)
	for _, bytes := range []uintptr{1, 7, 8, line - 1, line, line + 1, 100, 1000, 16<<10 - 1, 16 << 10, 16<<10 + 1, 1 << 20, 1<<20 + 1, 5 << 20} {
		for _, huge := range []bool{false, true} {
			var dropped unsafe.Pointer
			for range 3 {
				b := m.Get(bytes, huge)
				held += int64(bytes)
				if m.bytes.Load() != held {
					t.Fatalf("%d bytes are held, want %d", m.bytes.Load(), held)
				}
				if uintptr(b.At)%line != 0 {
					t.Errorf("%d bytes begin within a cache line", bytes)
				}
				if b.heap != nil {
					if end := uintptr(unsafe.Pointer(&b.heap[0])) + uintptr(8*len(b.heap)); uintptr(b.At)+bytes > end {
						t.Fatalf("%d bytes end %d behind the heap's", bytes, uintptr(b.At)+bytes-end)
					}
				} else if end := b.m.start + b.m.bytes; uintptr(b.At) < b.m.start || uintptr(b.At)+bytes > end {
					t.Fatalf("%d bytes at %#x are not within %#x to %#x", bytes, uintptr(b.At), b.m.start, end)
				} else if dropped != nil && b.At != dropped {
					t.Errorf("%d bytes lie elsewhere than those that were dropped", bytes)
				}
				all := unsafe.Slice((*byte)(b.At), bytes)
				if slices.ContainsFunc(all, func(x byte) bool { return x != 0 }) {
					t.Errorf("%d bytes are not zeros", bytes)
				}
				for i := range all {
					all[i] = 0xff
				}
				dropped = b.At
				m.Drop(b)
				held -= int64(bytes)
			}
		}
	}
	m.Drop(Block{})
	if m.bytes.Load() != 0 {
		t.Errorf("%d bytes are left", m.bytes.Load())
	}
}

// A region's chunks are as great as may be, a power of two of elements, and lie where they
// were first put.
func TestChunksOfARegion(t *testing.T) {
	for _, size := range []uintptr{4, 8, 12, 64, 100, 4096, ChunkBytes / 2, ChunkBytes/2 + 4, ChunkBytes, 2 * ChunkBytes} {
		m := &Arena{}
		r := NewRegion(m, size)
		if chunk := size << r.shift; 2*chunk <= ChunkBytes || chunk > ChunkBytes && r.shift > 0 {
			t.Errorf("elements of %d bytes lie in chunks of %d", size, chunk)
		}
		r.Ensure(0)
		first := r.At(0)
		r.Ensure(1<<r.shift - 1)
		if n := len(*r.chunks.Load()); n != 1 {
			t.Errorf("elements of %d bytes: a chunk's take %d chunks", size, n)
		}
		r.Ensure(1 << r.shift)
		if n := len(*r.chunks.Load()); n != 2 {
			t.Errorf("elements of %d bytes: one more takes %d chunks", size, n)
		}
		if r.At(0) != first || r.At(1<<r.shift) != (*r.chunks.Load())[1] || r.shift > 0 && r.At(1) != unsafe.Add(first, size) {
			t.Errorf("elements of %d bytes do not lie side by side", size)
		}
		m.Release()
	}
}
