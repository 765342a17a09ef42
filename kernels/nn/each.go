package nn

// byStep computes a sample's rows of m from those of the first operand and the row that the second is.
type byStep struct {
	m int
	f function
}

func (k *byStep) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (k *byStep) do(l *Lane, s *step, lo, hi int) {
	for i := lo; i < hi; i++ {
		dst, x, row := l.views[s.out].row(i), l.views[s.in[0]].row(i), l.views[s.in[1]].row(i)
		for ; len(dst) > 0; dst, x = dst[k.m:], x[k.m:] {
			k.f(dst[:k.m], x[:k.m], row)
		}
	}
}

// sumProducts adds up the products of a sample's rows.
type sumProducts struct{ t int }

func (k *sumProducts) run(l *Lane, s *step) error {
	l.byRows(s, k, max(1, cheap/k.t))
	return nil
}

func (k *sumProducts) do(l *Lane, s *step, lo, hi int) {
	for i := lo; i < hi; i++ {
		dst, x, y := l.views[s.out].row(i), l.views[s.in[0]].row(i), l.views[s.in[1]].row(i)
		clear(dst)
		for m := len(dst); len(x) > 0; x, y = x[m:], y[m:] {
			x, y := x[:m], y[:m]
			for c := range dst {
				dst[c] += float32(x[c] * y[c])
			}
		}
	}
}
