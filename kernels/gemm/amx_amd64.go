//go:build !purego

package gemm

import (
	"errors"
	"fmt"
	"math"
)

// AMX multiplies tiles: registers of 16 rows by 64 bytes. TDPBF16PS adds to 16 by 16 sums
// the products of 16 rows of A and 16 columns of B over 32 k, as pairs. Two tiles of A and
// two of B give four of C, so each is read once for two uses.
//
// B is packed as for VDPBF16PS. A lies in rows (see packRows). The last block of 16 steps
// is filled up with zeros; rows and columns that C does not have are left out by the
// configuration, so that nothing outside C is read or written.
//
// Tiles are the thread's, not the goroutine's, and none may outlive a call: the routine
// configures, works and releases without coming back to Go in between, and Go does not
// preempt assembly. Configuring costs some 200 cycles, hence all of a chunk's tiles of C
// below one another go into one call.
var amxBF16 = &backend{
	name: "amxbf16", mr: 32, masked: true, rounds: true, pairs: true, amx: true,
	tile: func(t *tile) { amxTile(t, sweepAMX) }, copy: copyBF16, transpose: transposeAVX512, round: roundBF16, rows: rowsBF16,
}

//go:noescape
func sweepAMX(s *sweep)

//go:noescape
func rowsBF16(p *panel)

//go:noescape
func spinAMX(n int)

//go:noescape
func xgetbv(what uint32) uint32

// amxTile computes t's rows, which may be those of many panels, with so many calls of run
// as there are sizes of tiles, and finishes them with the AVX-512 tile of no steps.
func amxTile(t *tile, run func(*sweep)) {
	s := &t.amx
	s.a, s.b, s.bias = t.a, t.b, t.bias
	s.blocks = (t.steps + 15) / 16
	s.nextA, s.nextC, s.ldc = t.next, 32*t.ldc, t.ldc
	s.start = t.start
	full := t.rows / 32
	if full > 0 {
		s.c, s.tiles, s.pastA = t.c, full, 0
		s.configure(32, t.width)
		run(s)
	}
	if rest := t.rows % 32; rest > 0 {
		if s.blocks > 0 {
			s.a = &floats(t.a, uintptr(full)*t.next, 1)[0]
		}
		s.c, s.tiles, s.pastA = &floats(t.c, uintptr(full)*s.nextC, 1)[0], 1, 0
		s.configure(rest, t.width)
		run(s)
	}
	s.a, s.b, s.c, s.bias = nil, nil, nil, nil
	if t.finish == Keep {
		return
	}
	rows, c, mask := t.rows, t.c, t.mask
	t.steps, t.start = 0, startC
	for i := 0; i < rows; i += 14 {
		t.rows, t.c = min(14, rows-i), &floats(c, uintptr(i)*t.ldc, 1)[0]
		if t.finish == Mask {
			t.mask = &floats(mask, uintptr(i)*t.ldm, 1)[0]
		}
		tileAVX512(t)
	}
}

// The tiles: four of C, two of A (above, below), two of B (left, right).
const (
	tileC = 0
	tileA = 4
	tileB = 6
)

// configure describes tiles for rows by cols of C, each 1 to 32. A tile that C has not is
// given one row or column of what is packed, and its sums are not stored.
func (s *sweep) configure(rows, cols int) {
	s.low, s.right = rows > 16, cols > 16
	upper, lower := min(rows, 16), max(rows-16, 1)
	left, right := min(cols, 16), max(cols-16, 1)
	s.config = [64]byte{0: 1} // the palette
	for n, size := range [8][2]int{
		tileC: {upper, left}, {upper, right}, {lower, left}, {lower, right},
		tileA: {upper, 16}, {lower, 16},
		tileB: {16, left}, {16, right},
	} {
		s.config[16+2*n] = byte(size[1] * 4)
		s.config[48+n] = byte(size[0])
	}
}

// proven multiplies once with the backends of pair and says what is wrong with the result
// in bf16: the sizes fill neither tiles nor blocks of k, and there is a start to keep.
func proven(pair [2]*backend) error {
	const m, n, k = 37, 45, 75
	a, b, c := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
	for i := range a {
		a[i] = float32(i*37%101) - 50 // whole numbers: bfloat16 holds them
	}
	for i := range b {
		b[i] = float32(i*53%97) - 48
	}
	for i := range c {
		c[i] = float32(i%11) / 4
	}
	p := Workspace{choice: &pair}
	if err := p.Mul(Of(c, m, n), Of(a, m, k), Of(b, k, n), Op{Alpha: 1, Beta: 1, BF16: true}); err != nil {
		return err
	}
	for i := range m {
		for j := range n {
			want := float64((i*n+j)%11) / 4
			size := want
			for l := range k {
				x := float64(a[i*k+l]) * float64(b[l*n+j])
				want, size = want+x, size+math.Abs(x)
			}
			if got := float64(c[i*n+j]); !(math.Abs(got-want) <= (k+2)*0x1p-23*size) {
				return fmt.Errorf("the first product with %v is wrong: element %d,%d is %g, not %g; hold it back with MONOLITH_KERNELS=avx512bf16 and report the processor", pair[1], i, j, got, want)
			}
		}
	}
	return nil
}

// Bits of XCR0: the tiles' configuration and data.
const tileState = 1<<17 | 1<<18

// lendTiles gets the tiles for this process.
func lendTiles() error {
	if xgetbv(0)&tileState != tileState {
		return errors.New("the system does not save tiles (XCR0 lacks bits 17 and 18): it takes Linux 5.16 or newer, and a hypervisor that passes AMX on")
	}
	return requestTiles()
}
