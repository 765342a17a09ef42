package nn

import "math"

// softmax takes rows of m; with lengths, the last operand.
type softmax struct {
	m       int
	lengths bool
}

// counting is how many places of sample i's rows count.
func (k *softmax) counting(l *Lane, s *step, i int) int {
	if !k.lengths {
		return k.m
	}
	count, length := 0, l.views[s.in[len(s.in)-1]].row(i)[0]
	for count < k.m && float32(count) < length {
		count++
	}
	return count
}

func (k *softmax) run(l *Lane, s *step) error {
	l.byRows(s, k, costly)
	return nil
}

func (k *softmax) do(l *Lane, s *step, lo, hi int) {
	for i := lo; i < hi; i++ {
		dst, x := l.views[s.out].row(i), l.views[s.in[0]].row(i)
		count := k.counting(l, s, i)
		for ; len(dst) > 0; dst, x = dst[k.m:], x[k.m:] {
			softmaxRow(dst[:count], x[:count])
			clear(dst[count:k.m])
		}
	}
}

func softmaxRow(dst, x []float32) {
	most, sum := float32(math.Inf(-1)), 0.0
	for _, v := range x {
		if v > most || v != v {
			most = v
		}
	}
	for _, v := range x {
		sum += math.Exp(float64(v) - float64(most))
	}
	for i, v := range x {
		dst[i] = float32(math.Exp(float64(v)-float64(most)) / sum)
	}
}

// softmaxGrad is its derivative.
type softmaxGrad struct{ softmax }

func (k *softmaxGrad) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (k *softmaxGrad) do(l *Lane, s *step, lo, hi int) {
	for i := lo; i < hi; i++ {
		dst, dy, y := l.views[s.out].row(i), l.views[s.in[0]].row(i), l.views[s.in[1]].row(i)
		count := k.counting(l, s, i)
		for ; len(dst) > 0; dst, dy, y = dst[k.m:], dy[k.m:], y[k.m:] {
			sum := 0.0
			for c, d := range dy[:count] {
				sum += float64(d) * float64(y[c])
			}
			for c, d := range dy[:count] {
				dst[c] = float32(float64(y[c]) * (float64(d) - sum))
			}
			clear(dst[count:k.m])
		}
	}
}
