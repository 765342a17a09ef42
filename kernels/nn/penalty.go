package nn

import (
	"math"

	"github.com/monolith-go/monolith/kernels/graph"
)

// penalty is a sum of float64 in order, on one thread.
type penalty struct {
	l1, l2 float64
	batch  bool
}

func penaltyOf(op graph.Penalty, in graph.Shape) kernel {
	return penalty{float64(op.L1), float64(op.L2), in.Batch}
}

func (k penalty) run(l *Lane, s *step) error {
	x, out, sum, squares := l.views[s.in[0]], l.views[s.out].v, 0.0, 0.0
	for i := range x.n {
		for _, v := range x.row(i) {
			sum += math.Abs(float64(v))
			squares += float64(v) * float64(v)
		}
	}
	sum = k.l1*sum + k.l2*squares
	if k.batch && l.n > 0 {
		sum /= float64(l.n)
	}
	out[0] = float32(sum)
	return nil
}

// penaltyGradOf is by row, which knows the size of the batch, or by element.
func penaltyGradOf(op graph.PenaltyGrad, in graph.Shape) kernel {
	if in.Batch {
		return &byRow{grain: cheap, f: func(dst, x, _ []float32, n int) { penaltyGrad(dst, x, op, float64(n)) }}
	}
	return &byElement{func(dst, x, _ []float32) { penaltyGrad(dst, x, op, 1) }, cheap}
}

func penaltyGrad(dst, x []float32, op graph.PenaltyGrad, n float64) {
	l1, l2 := float64(op.L1), 2*float64(op.L2)
	for i, v := range x {
		d := l2 * float64(v)
		if v > 0 {
			d += l1
		} else if v < 0 {
			d -= l1
		}
		dst[i] = float32(d / n)
	}
}
