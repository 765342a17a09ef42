package nn

import "math"

// norm computes each row of m from those of one or two operands.
type norm struct {
	m       int
	epsilon float64
	f       func(dst, x, y []float32, epsilon float64)
}

func (k *norm) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (k *norm) do(l *Lane, s *step, lo, hi int) {
	for i := lo; i < hi; i++ {
		dst, x := l.views[s.out].row(i), l.views[s.in[0]].row(i)
		y := l.views[s.in[len(s.in)-1]].row(i)
		for ; len(dst) > 0; dst, x, y = dst[k.m:], x[k.m:], y[k.m:] {
			k.f(dst[:k.m], x[:k.m], y[:k.m], k.epsilon)
		}
	}
}

// moments are a row's mean and what it is multiplied by.
func moments(x []float32, epsilon float64) (mean, scale float64) {
	for _, v := range x {
		mean += float64(v)
	}
	mean /= float64(len(x))
	variance := 0.0
	for _, v := range x {
		d := float64(v) - mean
		variance += float64(d * d)
	}
	return mean, 1 / math.Sqrt(variance/float64(len(x))+epsilon)
}

func normalize(dst, x, _ []float32, epsilon float64) {
	mean, scale := moments(x, epsilon)
	for i, v := range x[:len(dst)] {
		dst[i] = float32((float64(v) - mean) * scale)
	}
}

func normalizeGrad(dst, dy, x []float32, epsilon float64) {
	center, scale := moments(x, epsilon)
	mean, along := 0.0, 0.0
	for i, d := range dy {
		mean += float64(d)
		along += float64(float64(d) * ((float64(x[i]) - center) * scale))
	}
	mean, along = mean/float64(len(dy)), along/float64(len(dy))
	for i, d := range dy {
		y := (float64(x[i]) - center) * scale
		dst[i] = float32((float64(d) - mean - float64(y*along)) * scale)
	}
}

// length is a row's, inverted, and whether epsilon takes its place.
func length(x []float32, epsilon float64) (inverted float64, short bool) {
	sum := 0.0
	for _, v := range x {
		sum += float64(float64(v) * float64(v))
	}
	if sum < epsilon {
		sum, short = epsilon, true
	}
	return 1 / math.Sqrt(sum), short
}

func l2Norm(dst, x, _ []float32, epsilon float64) {
	scale, _ := length(x, epsilon)
	for i, v := range x[:len(dst)] {
		dst[i] = float32(float64(v) * scale)
	}
}

func l2NormGrad(dst, dy, x []float32, epsilon float64) {
	scale, short := length(x, epsilon)
	along := 0.0
	if !short {
		for i, d := range dy {
			along += float64(float64(d) * (float64(x[i]) * scale))
		}
	}
	for i, d := range dy {
		y := float64(x[i]) * scale
		dst[i] = float32((float64(d) - float64(y*along)) * scale)
	}
}
