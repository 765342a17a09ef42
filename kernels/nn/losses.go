package nn

import "math"

// crossEntropy is a sum of float64 in the batch's order, on one thread.
type crossEntropy struct{}

func (crossEntropy) run(l *Lane, s *step) error {
	l.mean(s, func(z, y float64) float64 {
		return math.Max(z, 0) - z*y + math.Log1p(math.Exp(-math.Abs(z)))
	})
	return nil
}

func crossEntropyGrad(dst, z, y []float32, n int) {
	dst[0] = float32((1/(1+math.Exp(-float64(z[0]))) - float64(y[0])) / float64(n))
}

// mse is a sum of float64 in the batch's order, on one thread.
type mse struct{}

func (mse) run(l *Lane, s *step) error {
	l.mean(s, func(p, y float64) float64 { return (p - y) * (p - y) })
	return nil
}

func mseGrad(dst, p, y []float32, n int) {
	dst[0] = float32(2 * (float64(p[0]) - float64(y[0])) / float64(n))
}

// mean is over the samples, each by its weight where there is a third operand; of none it is 0.
func (l *Lane) mean(s *step, term func(x, y float64) float64) {
	x, y, out := l.views[s.in[0]], l.views[s.in[1]], l.views[s.out].v
	out[0] = 0
	if l.n == 0 {
		return
	}
	sum := 0.0
	for i := range l.n {
		t := term(float64(x.row(i)[0]), float64(y.row(i)[0]))
		if len(s.in) > 2 {
			t *= float64(l.views[s.in[2]].row(i)[0])
		}
		sum += t
	}
	out[0] = float32(sum / float64(l.n))
}
