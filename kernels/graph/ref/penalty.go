package ref

import (
	"math"

	"github.com/monolith-go/monolith/kernels/graph"
)

// perSample is what a value of the batch is divided by for a mean.
func (a *at) perSample() number {
	if a.shapes[0].Batch && a.n > 0 {
		return exact(1 / float64(a.n))
	}
	return exact(1)
}

func (a *at) penalty(op graph.Penalty) {
	sum, squares := exact(0), exact(0)
	for i := range a.in[0].V {
		x := a.in[0].of(i)
		sum = sum.add(number{math.Abs(x.v), x.e})
		squares = squares.add(x.mul(x))
	}
	v := sum.mul(exact(float64(op.L1))).add(squares.mul(exact(float64(op.L2)))).mul(a.perSample())
	a.out[0], a.e[0] = v.loose(0x1p-40 * math.Abs(v.v)).round().both()
}

func (a *at) penaltyGrad(op graph.PenaltyGrad) {
	l1, l2 := float64(op.L1), 2*float64(op.L2)
	a.each(func(i int) (float64, float64) {
		x := a.in[0].of(i)
		d := x.mul(exact(l2))
		switch {
		case math.Abs(x.v) <= x.e && x.e > 0:
			d = d.add(number{sign(x.v) * l1, 2 * l1})
		default:
			d = d.add(exact(sign(x.v) * l1))
		}
		return d.mul(a.perSample()).round().both()
	})
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}
