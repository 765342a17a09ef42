// Package gemm multiplies float32 matrices: C = alpha*A*B + beta*C, with what a layer of a
// network needs done to C while it is still in registers.
//
// Every element of C is one chain over k in ascending order: it starts from zero, the bias
// or beta*C, and takes (alpha*A[i,k])*B[k,j] one after the other, whatever the blocking,
// the tile an element falls in, the rows computed beside it, alignment, or the number of
// threads. So a backend gives the same bits for a row alone and among others, with one
// thread and with many; AVX2 and AVX-512 fuse each multiplication with its addition and
// agree bit for bit, plain Go rounds both. Work is split over rows and columns, never
// over k.
//
// Bound: |C - exact| <= (k+2)*2^-23 * (sum |alpha*a*b| + |start|). With Op.BF16 the factors
// are first rounded to bfloat16, to nearest even, which adds 2^-7*(1+2^-9) of sum
// |alpha*a*b| (2^-8 per factor); sums stay float32. bf16 bits differ between backends
// within that bound, plus k*2^-126*max(1,|a|,|b|): VDPBF16PS adds two products in one step,
// AMX's TDPBF16PS adds the even and the odd ones of 32 k each in a chain of its own, then
// both chains to each other and that to C; both take subnormal numbers for zero, sums
// included. The 32 begin at multiples of 32, so these bits too depend on nothing else.
//
// NaN and Inf follow IEEE 754: no term is skipped because a factor is zero, alpha = 0
// included. With beta = 0 C is not read. ReLU keeps a NaN; Mask keeps what lies under one.
package gemm

import "fmt"

// Mat is a row-major view of float32: element i,j is V[i*Stride+j], or V[j*Stride+i] once
// transposed. Its zero value is an empty matrix.
type Mat struct {
	V          []float32
	Rows, Cols int
	Stride     int // floats from one row of V to the next
	transposed bool
}

// Of is the matrix of rows by cols that fills v.
func Of(v []float32, rows, cols int) Mat { return Mat{V: v, Rows: rows, Cols: cols, Stride: cols} }

// T is the transposed view.
func (m Mat) T() Mat {
	m.Rows, m.Cols, m.transposed = m.Cols, m.Rows, !m.transposed
	return m
}

// at is the element of row i and column j.
func (m Mat) at(i, j int) float32 {
	if m.transposed {
		i, j = j, i
	}
	return m.V[i*m.Stride+j]
}

func (m Mat) check(name string) error {
	rows, cols := m.Rows, m.Cols
	if m.transposed {
		rows, cols = cols, rows
	}
	switch {
	case rows < 0 || cols < 0 || m.Stride < cols:
		return fmt.Errorf("gemm: %s is %d by %d with stride %d: give sizes of 0 or more and a stride of at least the columns", name, rows, cols, m.Stride)
	case rows > 0 && cols > 0 && (cols > len(m.V) || (rows-1) > (len(m.V)-cols)/m.Stride):
		return fmt.Errorf("gemm: %s holds %d floats: %d rows of %d with stride %d need more", name, len(m.V), rows, cols, m.Stride)
	}
	return nil
}

// Finish is what happens to C's elements before they are stored.
type Finish int

// The finishes.
const (
	Keep Finish = iota
	ReLU        // max(0, c); NaN stays NaN
	Mask        // c where Op.Mask is above 0 or NaN, else 0: ReLU's gradient by its output
)

// Op says what to make of the product.
type Op struct {
	Alpha  float32   // factor of A
	Beta   float32   // factor of C; with 0, C is only written
	Bias   []float32 // if not nil: a row of C's columns that is added; Beta must be 0
	Finish Finish
	Mask   Mat  // for Mask: as large as C, not transposed
	BF16   bool // multiply in bfloat16, add in float32
}

// Plain is C = A*B.
var Plain = Op{Alpha: 1}

func (op *Op) check(c Mat) error {
	switch {
	case op.Bias != nil && (len(op.Bias) != c.Cols || op.Beta != 0):
		return fmt.Errorf("gemm: a bias of %d floats for %d columns with beta %g: give one per column, and beta 0", len(op.Bias), c.Cols, op.Beta)
	case op.Finish < Keep || op.Finish > Mask:
		return fmt.Errorf("gemm: unknown finish %d: use Keep, ReLU or Mask", op.Finish)
	case op.Finish != Mask:
		return nil
	case op.Mask.Rows != c.Rows || op.Mask.Cols != c.Cols || op.Mask.transposed:
		return fmt.Errorf("gemm: a mask of %d by %d for a product of %d by %d: make them equal, and do not transpose it", op.Mask.Rows, op.Mask.Cols, c.Rows, c.Cols)
	}
	return op.Mask.check("the mask")
}

// Mul sets c, which must not be transposed nor share memory with the rest, to
// alpha*a*b + beta*c. On an error c is unchanged.
func (s *Workspace) Mul(c, a, b Mat, op Op) error {
	if err := b.check("B"); err != nil {
		return err
	}
	if a.Cols != b.Rows || c.Rows != a.Rows || c.Cols != b.Cols || c.transposed {
		return fmt.Errorf("gemm: %d by %d = %d by %d times %d by %d do not fit, or C is transposed", c.Rows, c.Cols, a.Rows, a.Cols, b.Rows, b.Cols)
	}
	return s.run(c, a, source{mat: b}, op)
}

// Packed is a B laid out for the kernels once, for many products.
type Packed struct {
	rows, cols int
	be         *backend
	data       []float32
	first, all int // rows of what was packed: those before this part, and how many there are
}

// Grain is how many rows a Packed can be cut into parts at: one, or as many as a step of the kernels takes.
func (p *Packed) Grain() int {
	switch {
	case p.be.amx:
		return wide
	case p.be.pairs:
		return 2
	}
	return 1
}

// Part is rows from to to (excluded), each a multiple of [Packed.Grain] or the end, without copying. A
// product with the first rows, and one with the others that starts from it as its bias, are together the
// chain of the whole: no bit differs.
func (p *Packed) Part(from, to int) Packed {
	if g := p.Grain(); from < 0 || to < from || to > p.rows || from%g != 0 || to%g != 0 && to != p.rows {
		panic(fmt.Sprintf("gemm: rows %d to %d of %d in steps of %d", from, to, p.rows, g))
	}
	q := *p
	q.first, q.rows = p.first+from, to-from
	return q
}

// Pack lays b out, for Op.BF16 or not, into the memory of old if that suffices (old may be
// nil, and is unusable afterwards). The result does not follow later changes of b; any
// number of workspaces may read it.
func (s *Workspace) Pack(old *Packed, b Mat, bf16 bool) (*Packed, error) {
	if err := b.check("B"); err != nil {
		return nil, err
	}
	if old == nil {
		old = &Packed{}
	}
	be := s.backend(bf16)
	*old = Packed{rows: b.Rows, cols: b.Cols, be: be, data: align(old.data, be.bytes(b.Rows, b.Cols, wide)), all: b.Rows}
	s.ready()
	s.job = job{be: be, b: source{mat: b}, packed: old.data, cols: b.Cols, k: b.Rows}
	s.job.kpad = be.pad(b.Rows)
	s.Pool.Each((b.Cols+wide-1)/wide, s.packPanel)
	s.job = job{}
	return old, nil
}

// MulPacked is Mul with a B packed by a workspace of the same process, with the same Op.BF16.
func (s *Workspace) MulPacked(c, a Mat, b *Packed, op Op) error {
	if a.Cols != b.rows || c.Rows != a.Rows || c.Cols != b.cols || c.transposed {
		return fmt.Errorf("gemm: %d by %d = %d by %d times %d by %d do not fit, or C is transposed", c.Rows, c.Cols, a.Rows, a.Cols, b.rows, b.cols)
	}
	if b.be != s.backend(op.BF16) {
		return fmt.Errorf("gemm: B is packed for %v: pack it with the Op.BF16 of the product", b.be)
	}
	return s.run(c, a, source{packed: b}, op)
}
