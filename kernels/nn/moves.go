package nn

// concat copies the operands that do not lie in its rows already.
type concat struct{}

func (k concat) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (concat) do(l *Lane, s *step, lo, hi int) {
	dst, from := l.views[s.out], 0
	for _, in := range s.in {
		x := l.views[in]
		for i := lo; i < hi; i++ {
			if row := dst.row(i)[from:][:x.width]; &row[0] != &x.row(i)[0] {
				copy(row, x.row(i))
			}
		}
		from += x.width
	}
}

// broadcast fills rows with a row.
type broadcast struct{}

func (k broadcast) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (broadcast) do(l *Lane, s *step, lo, hi int) {
	dst, x := l.views[s.out], l.views[s.in[0]]
	for i := lo; i < hi; i++ {
		for row := dst.row(i); len(row) > 0; row = row[len(x.v):] {
			copy(row, x.v)
		}
	}
}

// mulScalar multiplies by a number that is known when it runs.
type mulScalar struct{}

func (k mulScalar) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (mulScalar) do(l *Lane, s *step, lo, hi int) {
	dst, x, by := l.views[s.out], l.views[s.in[0]], l.views[s.in[1]].v[0]
	for i := lo; i < hi; i++ {
		to := dst.row(i)
		for k, v := range x.row(i) {
			to[k] = v * by
		}
	}
}

// timesBatch multiplies by the number of samples.
type timesBatch struct{}

func (timesBatch) run(l *Lane, s *step) error {
	l.views[s.out].v[0] = l.views[s.in[0]].v[0] * float32(l.n)
	return nil
}
