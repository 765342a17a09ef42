package table

import (
	"slices"
	"testing"
	"unsafe"
)

// A block is zeros, begins with a cache line and has as many bytes as were asked for,
// again when it is used again.
func TestBlocks(t *testing.T) {
	m := &memory{}
	defer m.release()
	held := int64(0)
	for _, bytes := range []uintptr{1, 7, 8, line - 1, line, line + 1, 100, 1000, 16<<10 - 1, 16 << 10, 16<<10 + 1, 1 << 20, 1<<20 + 1, 5 << 20} {
		for _, huge := range []bool{false, true} {
			var dropped unsafe.Pointer
			for range 3 {
				b := m.get(bytes, huge)
				held += int64(bytes)
				if m.bytes.Load() != held {
					t.Fatalf("%d bytes are held, want %d", m.bytes.Load(), held)
				}
				if uintptr(b.at)%line != 0 {
					t.Errorf("%d bytes begin within a cache line", bytes)
				}
				if b.heap != nil {
					if end := uintptr(unsafe.Pointer(&b.heap[0])) + uintptr(8*len(b.heap)); uintptr(b.at)+bytes > end {
						t.Fatalf("%d bytes end %d behind the heap's", bytes, uintptr(b.at)+bytes-end)
					}
				} else if end := b.m.start + b.m.bytes; uintptr(b.at) < b.m.start || uintptr(b.at)+bytes > end {
					t.Fatalf("%d bytes at %#x are not within %#x to %#x", bytes, uintptr(b.at), b.m.start, end)
				} else if dropped != nil && b.at != dropped {
					t.Errorf("%d bytes lie elsewhere than those that were dropped", bytes)
				}
				all := unsafe.Slice((*byte)(b.at), bytes)
				if slices.ContainsFunc(all, func(x byte) bool { return x != 0 }) {
					t.Errorf("%d bytes are not zeros", bytes)
				}
				for i := range all {
					all[i] = 0xff
				}
				dropped = b.at
				m.drop(b)
				held -= int64(bytes)
			}
		}
	}
	m.drop(block{})
	if m.bytes.Load() != 0 {
		t.Errorf("%d bytes are left", m.bytes.Load())
	}
}

// A region's chunks are as great as may be, a power of two of elements, and lie where they
// were first put.
func TestChunksOfARegion(t *testing.T) {
	for _, size := range []uintptr{4, 8, 12, 64, 100, 4096, chunkBytes / 2, chunkBytes/2 + 4, chunkBytes, 2 * chunkBytes} {
		m := &memory{}
		r := newRegion(m, size)
		if chunk := size << r.shift; 2*chunk <= chunkBytes || chunk > chunkBytes && r.shift > 0 {
			t.Errorf("elements of %d bytes lie in chunks of %d", size, chunk)
		}
		r.ensure(0)
		first := r.at(0)
		r.ensure(1<<r.shift - 1)
		if n := len(*r.chunks.Load()); n != 1 {
			t.Errorf("elements of %d bytes: a chunk's take %d chunks", size, n)
		}
		r.ensure(1 << r.shift)
		if n := len(*r.chunks.Load()); n != 2 {
			t.Errorf("elements of %d bytes: one more takes %d chunks", size, n)
		}
		if r.at(0) != first || r.at(1<<r.shift) != (*r.chunks.Load())[1] || r.shift > 0 && r.at(1) != unsafe.Add(first, size) {
			t.Errorf("elements of %d bytes do not lie side by side", size)
		}
		m.release()
	}
}

// Each shard takes the next numbers for its rows, a few at a time, and there are chunks
// for as many and no more.
func TestNumbersOfRows(t *testing.T) {
	tab := plainTable(t, 1)
	tab.rows, tab.times = newRegion(tab.mem, chunkBytes/16), newRegion(tab.mem, chunkBytes/16)
	want := uint32(0)
	for _, shard := range []int{0, 5, 63, 5, 0, 1, 2, 3} {
		for range 4 {
			row, ok := tab.newRow(&tab.shards[shard])
			if !ok || row != want {
				t.Fatalf("row %d was made, %v, want %d", row, ok, want)
			}
			want++
		}
		for _, r := range []*region{tab.rows, tab.times} {
			if n := len(*r.chunks.Load()); n != int(want+15)/16 {
				t.Errorf("%d chunks are there for %d rows, 16 in each", n, want)
			}
		}
	}
}

// A row touches no more cache lines than are fetched for it, and where rows are aligned
// none is fetched in vain.
func TestLinesOfARow(t *testing.T) {
	for _, size := range []uintptr{4, 8, 16, 20, 24, 32, 48, 60, 64, 68, 96, 100, 128, 192, 200, 256} {
		tab := plainTable(t, 1)
		tab.rows = newRegion(tab.mem, size)
		for bytes := uintptr(4); bytes <= size; bytes += 4 {
			most := uintptr(0)
			for i := range uintptr(line) {
				most = max(most, (i*size%line+bytes+line-1)/line)
			}
			got := uintptr(tab.lines(int(bytes)))
			if aligned := size%line == 0 || line%size == 0; got < most || got > most+1 || aligned && got != most {
				t.Errorf("%d bytes of rows %d apart: %d lines are fetched, %d are touched at most", bytes, size, got, most)
			}
		}
	}
	if n := plainTable(t, 1).lines(0); n != 1 {
		t.Errorf("of nothing %d lines are fetched", n)
	}
}
