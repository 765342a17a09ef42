package nn

import (
	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/graph"
)

// matMul is a product of kernels/gemm. A variable is taken as it has been packed, once for its version.
type matMul struct{ op graph.MatMul }

func (k matMul) run(l *Lane, s *step) error {
	op := gemm.Op{Alpha: 1, BF16: k.op.Precision == graph.BF16}
	a := l.views[s.in[0]].mat(s.shapes[0].Last())
	w := l.views[s.in[1]]
	if k.op.Kind == graph.TN {
		rows, cols := s.node.Shape.Dims[0], s.node.Shape.Dims[1]
		return l.mm.Mul(gemm.Of(l.views[s.out].v, rows, cols), a.T(), w.mat(cols), op)
	}
	last := s.node.Shape.Last()
	c := l.views[s.out].mat(last)
	if k.op.Bias {
		op.Bias = l.views[s.in[2]].v
	}
	switch k.op.Finish {
	case graph.ToReLU:
		op.Finish = gemm.ReLU
	case graph.ToMask:
		op.Finish, op.Mask = gemm.Mask, l.views[s.in[k.op.Mask()]].mat(last)
	}
	rows, cols := s.shapes[1].Dims[0], s.shapes[1].Dims[1]
	if k.op.Precision == graph.INT8 {
		packed, err := l.weights.int8(&l.mm, s.weight, rows, cols)
		if err != nil {
			return err
		}
		return l.mm.MulInt8(c, a, packed, op)
	}
	if i := s.weight; i >= 0 {
		packed, err := l.weights.packed(&l.mm, i, rows, cols, k.op.Kind == graph.NT, op.BF16)
		if err != nil {
			return err
		}
		if k := l.leading(s, packed); k > 0 {
			if op.Bias, err = l.start(a, packed, k, last, op); err != nil {
				return err
			}
			l.part = packed.Part(k, a.Cols)
			a.V, a.Cols, packed = a.V[k:], a.Cols-k, &l.part
		}
		return l.mm.MulPacked(c, a, packed, op)
	}
	b := gemm.Of(w.v, rows, cols)
	if k.op.Kind == graph.NT {
		b = b.T()
	}
	return l.mm.Mul(c, a, b, op)
}

// sumRows is a row of ones times its operand.
type sumRows struct{}

func (sumRows) run(l *Lane, s *step) error {
	last := s.node.Shape.Last()
	x := l.views[s.in[0]].mat(last)
	for len(l.ones) < x.Rows {
		l.ones = append(l.ones, 1)
	}
	return l.mm.Mul(gemm.Of(l.views[s.out].v, 1, last), gemm.Of(l.ones[:x.Rows], 1, x.Rows), x, gemm.Plain)
}
