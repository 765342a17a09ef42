package ref

import (
	"math"

	"github.com/monolith-go/monolith/kernels/graph"
)

// matMul computes a product element by element.
func (a *at) matMul(op graph.MatMul) {
	x, w := a.in[0], a.in[1]
	k, cols := a.shapes[0].Last(), a.node.Shape.Last()
	atX := func(i, j int) int { return i*k + j }
	atW := func(j, c int) int { return j*cols + c }
	depth := k
	switch op.Kind {
	case graph.NT:
		atW = func(j, c int) int { return c*k + j }
	case graph.TN:
		depth = a.n * a.shapes[0].Rows()
		atX = func(i, j int) int { return j*k + i }
	}
	var rows, columns []float64
	if op.Precision == graph.INT8 { // of kind NN
		rows, columns = make([]float64, len(x.V)/max(k, 1)), make([]float64, cols)
		for i := range x.V {
			rows[i/k] = math.Max(rows[i/k], math.Abs(x.V[i])+x.E[i])
		}
		for i := range w.V {
			columns[i%cols] = math.Max(columns[i%cols], math.Abs(w.V[i])+w.E[i])
		}
	}
	a.each(func(at int) (float64, float64) {
		i, c := at/cols, at%cols
		s := chain{bf16: op.Precision == graph.BF16}
		if op.Bias {
			s.start(a.in[2].V[c], a.in[2].E[c])
		}
		for j := range depth {
			p, q := atX(i, j), atW(j, c)
			s.add(x.V[p], w.V[q], x.E[p], w.E[q])
		}
		v, e := s.sum, s.bound()
		if rows != nil {
			e += s.int8(rows[i], columns[c])
		}
		switch op.Finish {
		case graph.ToReLU:
			v, e = relu(v, 0, e, 0)
		case graph.ToMask:
			m := a.in[op.Mask()]
			v, e = mask(v, m.V[at], e, m.E[at])
		}
		return v, e
	})
}

func (a *at) sumRows() {
	cols := len(a.out)
	a.each(func(c int) (float64, float64) {
		s := chain{}
		for i := c; i < len(a.in[0].V); i += cols {
			s.add(a.in[0].V[i], 1, a.in[0].E[i], 0)
		}
		return s.sum, s.bound()
	})
}

// chain is a sum of products in order, as kernels/gemm states its bound.
type chain struct {
	bf16                   bool
	k                      int
	sum, size, far, little float64 // the sum, that of absolute values, what operands are off, the largest factors
	left, right            float64 // sums of the factors' absolute values
}

func (s *chain) start(v, e float64) {
	s.sum, s.size, s.far = v, math.Abs(v)+e, e
}

func (s *chain) add(x, y, ex, ey float64) {
	s.k++
	s.sum += x * y
	s.far += spread(x, y, ex, ey)
	s.size += (math.Abs(x) + ex) * (math.Abs(y) + ey)
	s.left, s.right = s.left+math.Abs(x)+ex, s.right+math.Abs(y)+ey
	s.little += math.Max(1, math.Max(math.Abs(x)+ex, math.Abs(y)+ey))
}

func (s *chain) bound() float64 {
	k := float64(s.k)
	e := s.far + (k+2)*0x1p-23*s.size + (k+1)*tiny
	if s.bf16 {
		e += 0x1p-7*(1+0x1p-9)*s.size + 0x1p-126*s.little
	}
	return e
}

// int8 is what it is off by if both factors are rounded to whole numbers of up to 127 times the largest in
// their row or column: half of a scale each, and a little for the scale.
func (s *chain) int8(row, column float64) float64 {
	const half = 0.5 / 127 * (1 + 0x1p-20)
	return half*(s.left*column+s.right*row) + float64(s.k)*half*half*row*column
}
