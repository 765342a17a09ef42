package table

import (
	"fmt"
	"github.com/monolith-go/monolith/kernels/internal/offheap"
	"runtime"
	"unsafe"
)

// Ceiling measures what this machine's memory allows a table at best: rows of one width
// gathered at random places that are known beforehand, without an index, locks or a
// second array. Benchmarks state their figures as a part of it.
type Ceiling struct {
	width, rows int
	mem         *offheap.Arena
	b           offheap.Block
}

// NewCeiling makes rows rows of width bytes, a multiple of 64, 4 GiB of them at most,
// and touches each.
func NewCeiling(rows, width int) (*Ceiling, error) {
	if rows < 1 || width < line || width%line != 0 || width > 4*MaxDim || rows > 4<<30/width {
		return nil, fmt.Errorf("table: a gather of %d rows of %d bytes: give rows of a multiple of %d bytes, 4 GiB at most", rows, width, line)
	}
	c := &Ceiling{width: width, rows: rows, mem: &offheap.Arena{}}
	c.b = c.mem.Get(uintptr(rows*width), true)
	words := unsafe.Slice((*uint64)(c.b.At), rows*width/8)
	for i := range words {
		words[i] = uint64(i)
	}
	runtime.AddCleanup(c, (*offheap.Arena).Release, c.mem)
	return c, nil
}

// Gather copies row rows[i] to out[i*width:], which holds len(rows) of them. Rows below
// 0 or beyond the last panic.
func (c *Ceiling) Gather(rows []uint32, out []byte) {
	if len(out) != len(rows)*c.width {
		panic(fmt.Sprintf("table: a gather of %d rows of %d bytes into %d bytes", len(rows), c.width, len(out)))
	}
	if !c.check(rows) {
		return
	}
	switch chosen {
	case avx512:
		gatherAVX512(c.b.At, &rows[0], len(rows), c.width, unsafe.Pointer(&out[0]))
	default:
		from := unsafe.Slice((*byte)(c.b.At), c.rows*c.width)
		for i, r := range rows {
			copy(out[i*c.width:(i+1)*c.width], from[int(r)*c.width:])
		}
	}
	runtime.KeepAlive(c)
}

// Update adds one to each 64-bit word of row rows[i]: what memory allows an optimizer,
// which has to send as many lines back as it fetches.
func (c *Ceiling) Update(rows []uint32) {
	if !c.check(rows) {
		return
	}
	switch chosen {
	case avx512:
		addOneAVX512(c.b.At, &rows[0], len(rows), c.width)
	default:
		words := unsafe.Slice((*uint64)(c.b.At), c.rows*c.width/8)
		for _, r := range rows {
			row := words[int(r)*c.width/8:][:c.width/8]
			for i := range row {
				row[i]++
			}
		}
	}
	runtime.KeepAlive(c)
}

func (c *Ceiling) check(rows []uint32) bool {
	for _, r := range rows {
		if int(r) >= c.rows {
			panic(fmt.Sprintf("table: row %d of %d", r, c.rows))
		}
	}
	return len(rows) > 0
}
