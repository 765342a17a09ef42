package nn

// byLast computes each row of the last dimension from those of one or two operands and a row that all
// have, the last operand.
type byLast struct {
	f func(dst, x, y, row []float32)
}

func (k *byLast) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (k *byLast) do(l *Lane, s *step, lo, hi int) {
	row := l.views[s.in[len(s.in)-1]].v
	for i := lo; i < hi; i++ {
		dst, x, y := l.views[s.out].row(i), l.views[s.in[0]].row(i), l.views[s.in[0]].row(i)
		if len(s.in) > 2 {
			y = l.views[s.in[1]].row(i)
		}
		for m := len(row); len(dst) > 0; dst, x, y = dst[m:], x[m:], y[m:] {
			k.f(dst[:m], x[:m], y[:m], row)
		}
	}
}

func addRow(dst, x, _, row []float32) { add(dst, x, row) }

func mulRow(dst, x, _, row []float32) { mul(dst, x, row) }

func preLU(dst, x, _, slope []float32) {
	x, slope = x[:len(dst)], slope[:len(dst)]
	for i, v := range x {
		if v <= 0 {
			v *= slope[i]
		}
		dst[i] = v
	}
}

func preLUGrad(dst, dy, x, slope []float32) {
	dy, x, slope = dy[:len(dst)], x[:len(dst)], slope[:len(dst)]
	for i, v := range dy {
		if x[i] <= 0 {
			v *= slope[i]
		}
		dst[i] = v
	}
}
