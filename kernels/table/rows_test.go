package table

import (
	"testing"

	"github.com/monolith-go/monolith/kernels/internal/offheap"
)

// Each shard takes the next numbers for its rows, a few at a time, and there are chunks
// for as many and no more.
func TestNumbersOfRows(t *testing.T) {
	tab := plainTable(t, 1)
	tab.rows, tab.times = offheap.NewRegion(tab.mem, offheap.ChunkBytes/16), offheap.NewRegion(tab.mem, offheap.ChunkBytes/16)
	want := uint32(0)
	for _, shard := range []int{0, 5, 63, 5, 0, 1, 2, 3} {
		for range 4 {
			row, ok := tab.newRow(&tab.shards[shard])
			if !ok || row != want {
				t.Fatalf("row %d was made, %v, want %d", row, ok, want)
			}
			want++
		}
		for _, r := range []*offheap.Region{tab.rows, tab.times} {
			if n := len(r.Chunks()); n != int(want+15)/16 {
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
		tab.rows = offheap.NewRegion(tab.mem, size)
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
