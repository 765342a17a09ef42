package nn

import "github.com/monolith-go/monolith/kernels/vec"

// sumAlong adds up a dimension of a sample, which is outer times count times inner floats.
type sumAlong struct{ outer, count, inner int }

func along(outer, count, inner int) *sumAlong { return &sumAlong{outer, count, inner} }

func (k *sumAlong) run(l *Lane, s *step) error {
	l.byRows(s, k, max(1, cheap/k.count))
	return nil
}

func (k *sumAlong) do(l *Lane, s *step, lo, hi int) {
	for i := lo; i < hi; i++ {
		dst, x := l.views[s.out].row(i), l.views[s.in[0]].row(i)
		clear(dst)
		for o := range k.outer {
			to, from := dst[o*k.inner:][:k.inner], x[o*k.count*k.inner:][:k.count*k.inner]
			if k.inner == 1 {
				for _, v := range from {
					to[0] += v
				}
				continue
			}
			for ; len(from) > 0; from = from[k.inner:] {
				vec.Add(from[:k.inner], to)
			}
		}
	}
}

// repeat has each inner floats of a sample count times.
type repeat struct{ count, inner int }

func (k *repeat) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (k *repeat) do(l *Lane, s *step, lo, hi int) {
	for i := lo; i < hi; i++ {
		dst, x := l.views[s.out].row(i), l.views[s.in[0]].row(i)
		for ; len(x) > 0; x = x[k.inner:] {
			for range k.count {
				copy(dst, x[:k.inner])
				dst = dst[k.inner:]
			}
		}
	}
}
