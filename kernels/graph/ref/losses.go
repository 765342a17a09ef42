package ref

import (
	"math"

	"github.com/monolith-go/monolith/kernels/graph"
)

func (a *at) loss() bool {
	n := float64(a.n)
	switch a.node.Op.(type) {
	case graph.CrossEntropy:
		a.mean(func(z, y, ez, ey float64) (float64, float64) {
			// Its slope by z is at most 1, and that by y is -z.
			return math.Max(z, 0) - z*y + math.Log1p(math.Exp(-math.Abs(z))), ez*(1+ey) + (math.Abs(z)+ez)*ey
		})
	case graph.CrossEntropyGrad:
		a.pairs(func(z, y, ez, ey float64) (float64, float64) {
			v := (sigmoid(z) - y) / n
			return v, rounded(v, (ez/4+ey)/n+0x1p-50/n)
		})
	case graph.MSE:
		a.mean(func(p, y, ep, ey float64) (float64, float64) {
			d, e := p-y, ep+ey
			return d * d, 2*math.Abs(d)*e + e*e
		})
	case graph.MSEGrad:
		a.pairs(func(p, y, ep, ey float64) (float64, float64) {
			v := 2 * (p - y) / n
			return v, rounded(v, 2*(ep+ey)/n)
		})
	default:
		return false
	}
	return true
}

func (a *at) pairs(f func(x, y, ex, ey float64) (v, e float64)) {
	x, y := a.in[0], a.in[1]
	a.each(func(i int) (float64, float64) { return f(x.V[i], y.V[i], x.E[i], y.E[i]) })
}

// mean is over the batch; of no samples it is 0.
func (a *at) mean(f func(x, y, ex, ey float64) (v, e float64)) {
	if a.n == 0 {
		return
	}
	x, y := a.in[0], a.in[1]
	sum, far, mass := 0.0, 0.0, 0.0
	for i := range a.n {
		v, e := f(x.V[i], y.V[i], x.E[i], y.E[i])
		if len(a.in) > 2 {
			w := a.in[2]
			v, e = v*w.V[i], e*math.Abs(w.V[i])+(math.Abs(v)+e)*w.E[i]
			mass += math.Abs(v)
		}
		sum, far = sum+v, far+e
	}
	n := float64(a.n)
	a.out[0], a.e[0] = sum/n, rounded(sum/n, far/n+0x1p-40*math.Max(math.Abs(sum), mass)/n)
}
