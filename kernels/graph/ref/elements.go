package ref

import (
	"math"

	"github.com/monolith-go/monolith/kernels/graph"
)

// byElement computes the operations that are one function of each place.
func (a *at) byElement() bool {
	var f func(x, y, ex, ey float64) (v, e float64)
	switch op := a.node.Op.(type) {
	case graph.Add, graph.AddRow:
		f = func(x, y, ex, ey float64) (float64, float64) { return x + y, rounded(x+y, ex+ey) }
	case graph.Mul, graph.MulScalar, graph.MulRow:
		f = product
	case graph.Scale:
		factor, shift := float64(op.Factor), float64(op.Shift)
		f = func(x, _, ex, _ float64) (float64, float64) {
			p, e := product(x, factor, ex, 0)
			return p + shift, rounded(p+shift, e)
		}
	case graph.TimesBatch:
		f = func(x, _, ex, _ float64) (float64, float64) { return product(x, float64(float32(a.n)), ex, 0) }
	case graph.ReLU:
		f = relu
	case graph.Mask:
		f = mask
	case graph.Sigmoid:
		f = func(x, _, ex, _ float64) (float64, float64) { v := sigmoid(x); return v, rounded(v, ex/4) }
	case graph.Tanh:
		f = func(x, _, ex, _ float64) (float64, float64) { v := math.Tanh(x); return v, rounded(v, ex) }
	default:
		return false
	}
	a.each(func(i int) (float64, float64) {
		x, y, ex, ey := a.in[0].V[i], 0.0, a.in[0].E[i], 0.0
		if len(a.in) > 1 {
			j := i
			if !a.shapes[1].Batch { // a row, or a number, that all have
				j = i % len(a.in[1].V)
			}
			y, ey = a.in[1].V[j], a.in[1].E[j]
		}
		return f(x, y, ex, ey)
	})
	return true
}

func product(x, y, ex, ey float64) (v, e float64) {
	return x * y, rounded(x*y, spread(x, y, ex, ey))
}

// spread is how far the product of two numbers may be off if they are.
func spread(x, y, ex, ey float64) float64 {
	return math.Abs(x)*ey + math.Abs(y)*ex + ex*ey
}

func relu(x, _, ex, _ float64) (float64, float64) {
	if x < 0 {
		return 0, math.Max(0, x+ex)
	}
	return x, ex
}

func mask(x, y, ex, ey float64) (float64, float64) {
	unsure := math.Abs(y) <= ey && ey > 0
	switch {
	case unsure && math.IsNaN(x):
		return x, math.Inf(1)
	case y <= 0 && unsure:
		return 0, math.Abs(x) + ex
	case y <= 0:
		return 0, 0
	case unsure:
		return x, math.Abs(x) + ex
	}
	return x, ex
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
