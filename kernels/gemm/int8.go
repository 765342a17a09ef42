package gemm

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/monolith-go/monolith/kernels/vec"
)

// Products in int8: each row of A and each column of B becomes whole numbers from -127 to 127 times a scale of
// its own, its largest absolute value over 127. The sum over k is exact, in int32; what it stands for is
//
//	c[i,j] = float32(float32(float32(sum)*scale of row i) * scale of column j) + bias[j]
//
// each operation rounded once, so all back ends give the same bits whatever order they add in. B is quantised
// ahead and kept, A by the product: symmetric, by output channel and dynamically by row, as "Integer
// quantization for deep learning inference" (Wu et al., arXiv:2004.09602) and ZeroQuant (Yao et al., arXiv:2206.01861)
// have it.
//
// Bound: |C - exact| <= sum (|a|*colMax + |b|*rowMax + rowMax*colMax/254)/254, and the float32 operations above. A NaN or
// an Inf makes NaN of its row of A, or its column of B. Rows and columns below 2^-120 count as zeros.
const (
	most8   = 127
	least8  = 0x1p-120 // below it the reciprocal of a scale may overflow
	rows8   = 6        // of a block of C
	cols8   = 16       // of a block of C: lanes of a panel of B
	chunk8  = 48       // rows of A that a thread quantises at once: they stay in L2
	maxK8   = math.MaxInt32 / (most8 * most8)
	nearest = 3 << 22 // x + nearest - nearest is x rounded to even, for |x| below 2^22
)

// PackedInt8 is a B quantised and laid out once, for many products. Panels of 16 columns follow upon each
// other, in each a step is 16 lanes of two int16: neighbouring k of a column.
type PackedInt8 struct {
	rows, cols int
	pairs      []float32 // bits of two int16 each
	scales     []float32 // by column, up to whole panels
}

// block8 is a full 6 by 16 piece of a product; the assembly reads it too.
type block8 struct {
	a      *float32 // rows of pairs
	b      *float32 // steps of 64 bytes
	c      *float32
	steps  int     // at least 1
	lda    uintptr // bytes from row to row of a
	ldc    uintptr // bytes from row to row of c
	rows   *float32
	cols   *float32
	bias   *float32
	lowest float32 // what c is at least: 0 or -Inf; NaN stays
}

// backend8 is one implementation of products in int8.
type backend8 struct {
	name  string
	block func(*block8)
	// quantise rounds so many floats times inv to int16, in pairs.
	quantise func(dst *float32, src *float32, n int, inv float32)
}

var plain8 = &backend8{name: "plain", block: block8Go, quantise: quantise8Go}

// chosen8 is the backend that this process uses.
var chosen8 = fastest8()

// BackendInt8 names the implementation of products in int8 that is in use: "plain" or "avx2".
func BackendInt8() string { return chosen8.name }

// worker8 is the memory of one thread.
type worker8 struct {
	pairs  []float32 // rows of A
	scales []float32 // of them
	column []float32
	block  block8
	edge   [rows8 * cols8]float32 // a block that does not fit C
}

// job8 is what the threads work on.
type job8 struct {
	be             *backend8
	c, a           Mat
	b              *PackedInt8
	into           *PackedInt8
	bias           []float32 // up to whole panels
	lowest         float32
	chunks, splits int
}

func pairsOf(k int) int { return max(1, (k+1)/2) }

func (b *PackedInt8) panel(i int) []float32 {
	size := pairsOf(b.rows) * cols8
	return b.pairs[i*size:][:size]
}

// PackInt8 is [Workspace.Pack] for products in int8.
func (s *Workspace) PackInt8(old *PackedInt8, b Mat) (*PackedInt8, error) {
	if err := b.check("B"); err != nil {
		return nil, err
	}
	if b.Rows > maxK8 {
		return nil, fmt.Errorf("gemm: B has %d rows: products in int8 add up at most %d", b.Rows, maxK8)
	}
	if old == nil {
		old = &PackedInt8{}
	}
	panels := (b.Cols + cols8 - 1) / cols8
	*old = PackedInt8{rows: b.Rows, cols: b.Cols,
		pairs: align(old.pairs, panels*pairsOf(b.Rows)*cols8), scales: align(old.scales, panels*cols8)}
	clear(old.scales)
	s.ready()
	s.job8 = job8{be: s.backend8(), a: b, into: old}
	s.Pool.Each(panels, s.pack8)
	s.job8 = job8{}
	return old, nil
}

// packPhase8 quantises the columns of a panel.
func (s *Workspace) packPhase8(worker, i int) {
	j, w := &s.job8, &s.workers[worker].int8
	pairs := pairsOf(j.into.rows)
	panel := j.into.panel(i)
	clear(panel)
	w.column = align(w.column, j.into.rows)
	w.pairs = align(w.pairs, pairs)
	for lane := range min(cols8, j.into.cols-i*cols8) {
		for k := range w.column {
			w.column[k] = j.a.at(k, i*cols8+lane)
		}
		j.into.scales[i*cols8+lane] = quantise8(j.be, w.pairs, w.column)
		for step, two := range w.pairs {
			panel[step*cols8+lane] = two
		}
	}
}

// quantise8 writes a row in pairs, and returns its scale.
func quantise8(be *backend8, dst, row []float32) float32 {
	dst[len(dst)-1] = 0 // the second of the last pair may be none
	largest := vec.MaxAbs(row)
	switch {
	case largest-largest != 0: // NaN or Inf
		clear(dst)
		return float32(math.NaN())
	case largest < least8:
		clear(dst)
		return 0
	}
	be.quantise(&dst[0], &row[0], len(row), most8/largest)
	return largest / most8
}

// MulInt8 is [Workspace.MulPacked] for products in int8: op has Alpha 1, Beta 0 and Keep or ReLU, a is not transposed.
func (s *Workspace) MulInt8(c, a Mat, b *PackedInt8, op Op) error {
	if a.Cols != b.rows || c.Rows != a.Rows || c.Cols != b.cols || c.transposed || a.transposed {
		return fmt.Errorf("gemm: %d by %d = %d by %d times %d by %d in int8 do not fit, or C or A is transposed", c.Rows, c.Cols, a.Rows, a.Cols, b.rows, b.cols)
	}
	if op.Alpha != 1 || op.Beta != 0 || op.Finish != Keep && op.Finish != ReLU || op.BF16 {
		return fmt.Errorf("gemm: a product in int8 with alpha %g, beta %g, finish %d: it takes alpha 1, beta 0, and Keep or ReLU", op.Alpha, op.Beta, op.Finish)
	}
	if err := c.check("C"); err != nil {
		return err
	}
	if err := a.check("A"); err != nil {
		return err
	}
	if err := op.check(c); err != nil {
		return err
	}
	if c.Rows == 0 || c.Cols == 0 {
		return nil
	}
	s.ready()
	panels := len(b.scales) / cols8
	s.bias8 = align(s.bias8, len(b.scales))
	clear(s.bias8[copy(s.bias8, op.Bias):])
	j := &s.job8
	*j = job8{be: s.backend8(), c: c, a: a, b: b, bias: s.bias8, lowest: float32(math.Inf(-1)), chunks: (c.Rows + chunk8 - 1) / chunk8, splits: 1}
	if op.Finish == ReLU {
		j.lowest = 0
	}
	if threads := s.Pool.Threads(); threads > 1 && max(c.Rows, 8)*c.Cols*a.Cols >= alone {
		j.chunks = min((c.Rows+rows8-1)/rows8, max(j.chunks, 2*threads))
		if j.chunks < threads {
			j.splits = min(threads/j.chunks, panels)
		}
	}
	s.Pool.Each(j.chunks*j.splits, s.mul8)
	*j = job8{}
	return nil
}

// mulPhase8 computes some rows of C, and some columns.
func (s *Workspace) mulPhase8(worker, i int) {
	j, w := &s.job8, &s.workers[worker].int8
	blocks := (j.c.Rows + rows8 - 1) / rows8
	chunk, split := i%j.chunks, i/j.chunks
	first, last := blocks*chunk/j.chunks, blocks*(chunk+1)/j.chunks
	pairs, n := pairsOf(j.b.rows), (last-first)*rows8
	w.pairs, w.scales = align(w.pairs, n*pairs), align(w.scales, n)
	for r := range n {
		w.scales[r] = 0
		row := w.pairs[r*pairs:][:pairs]
		if i := first*rows8 + r; i >= j.c.Rows || j.b.rows == 0 {
			clear(row) // which nobody stores
		} else {
			w.scales[r] = quantise8(j.be, row, j.a.V[i*j.a.Stride:][:j.a.Cols])
		}
	}
	t := &w.block
	t.steps, t.lda, t.lowest = pairs, uintptr(pairs)*4, j.lowest
	panels := len(j.b.scales) / cols8
	for p := panels * split / j.splits; p < panels*(split+1)/j.splits; p++ {
		col := p * cols8
		t.b, t.cols, t.bias = &j.b.panel(p)[0], &j.b.scales[col], &j.bias[col]
		width := min(cols8, j.c.Cols-col)
		for m := range last - first {
			row := (first + m) * rows8
			rows := min(rows8, j.c.Rows-row)
			t.a, t.rows = &w.pairs[m*rows8*pairs], &w.scales[m*rows8]
			if rows == rows8 && width == cols8 {
				t.c, t.ldc = &j.c.V[row*j.c.Stride+col], uintptr(j.c.Stride)*4
				j.be.block(t)
				continue
			}
			t.c, t.ldc = &w.edge[0], cols8*4
			j.be.block(t)
			for r := range rows {
				copy(j.c.V[(row+r)*j.c.Stride+col:][:width], w.edge[r*cols8:])
			}
		}
	}
	*t = block8{}
}

func (s *Workspace) backend8() *backend8 {
	if s.choice8 != nil {
		return s.choice8
	}
	return chosen8
}

// halves are the two numbers of a pair.
func halves(pair float32) (first, second int32) {
	bits := math.Float32bits(pair)
	return int32(int16(bits)), int32(int16(bits >> 16))
}

func block8Go(t *block8) {
	scales, bias := floats(t.cols, 0, cols8), floats(t.bias, 0, cols8)
	for r, scale := range floats(t.rows, 0, rows8) {
		var sums [cols8]int32
		for step, pair := range floats(t.a, uintptr(r)*t.lda, t.steps) {
			x, y := halves(pair)
			for i, pair := range floats(t.b, uintptr(step)*cols8*4, cols8) {
				v, w := halves(pair)
				sums[i] += x*v + y*w
			}
		}
		c := floats(t.c, uintptr(r)*t.ldc, cols8)
		for i, sum := range sums {
			v := float32(float32(float32(sum)*scale)*scales[i]) + bias[i]
			if v < t.lowest {
				v = t.lowest
			}
			c[i] = v
		}
	}
}

func quantise8Go(dst, src *float32, n int, inv float32) {
	words := unsafe.Slice((*int16)(unsafe.Pointer(dst)), n)
	for i, x := range floats(src, 0, n) {
		words[i] = int16(float32(float32(x*inv)+nearest) - nearest)
	}
}
