package nn

// mulAdd is a product and a sum by element in one pass, with the bits of two.
type mulAdd struct{}

func (k mulAdd) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (mulAdd) do(l *Lane, s *step, lo, hi int) {
	dst, a, b, c := l.views[s.out], l.views[s.in[0]], l.views[s.in[1]], l.views[s.in[2]]
	for i := lo; i < hi; i++ {
		to := dst.row(i)
		x, y, z := a.row(i)[:len(to)], b.row(i)[:len(to)], c.row(i)[:len(to)]
		for k := range to {
			to[k] = float32(x[k]*y[k]) + z[k]
		}
	}
}
