//go:build !purego

package gemm

import "unsafe"

// block is a full 6 by 16 piece of a tile.
type block struct {
	a, b, c  *float32
	steps    int
	ldb, ldc uintptr
}

//go:noescape
func blockAVX2(b *block)

// tileAVX2Go computes a tile in pieces of 6 by 16. A tile that does not fill its pieces is
// computed in t.edge: the routine knows full pieces only, and panels have room for them.
func tileAVX2Go(t *tile) {
	c, ldc := t.c, t.ldc
	whole := t.width == wide && t.rows%6 == 0
	if !whole {
		c, ldc = &t.edge[0], wide*4
	}
	for i := range t.rows {
		row := floats(c, uintptr(i)*ldc, t.width)
		switch t.start {
		case startZero:
			clear(row)
		case startBias:
			copy(row, floats(t.bias, 0, t.width))
		case startC:
			copy(row, floats(t.c, uintptr(i)*t.ldc, t.width))
		}
	}
	if t.steps > 0 {
		for i := 0; i < t.rows; i += 6 {
			for j := 0; j < t.width; j += 16 {
				blockAVX2(&block{
					a: &floats(t.a, uintptr(i)*4, 1)[0], b: &floats(t.b, uintptr(j)*4, 1)[0],
					c:     (*float32)(unsafe.Add(unsafe.Pointer(c), uintptr(i)*ldc+uintptr(j)*4)),
					steps: t.steps, ldb: t.ldb, ldc: ldc,
				})
			}
		}
	}
	if !whole {
		for i := range t.rows {
			copy(floats(t.c, uintptr(i)*t.ldc, t.width), floats(c, uintptr(i)*ldc, t.width))
		}
	}
	finishGo(t)
}
