package nn

import (
	"github.com/monolith-go/monolith/kernels/internal/pairs"
	"github.com/monolith-go/monolith/kernels/vec"
)

// fm is the second-order term; the sums of a sample's embeddings lie aside.
type fm struct{ fields, dim int }

func (k *fm) aside() int { return k.dim }

func (k *fm) run(l *Lane, s *step) error {
	l.byRows(s, k, max(1, cheap/(k.fields*k.dim))) // a sample's result is one float
	return nil
}

func (k *fm) do(l *Lane, s *step, lo, hi int) {
	emb, sums, out := l.views[s.in[0]], l.views[s.aside], l.views[s.out]
	for i := lo; i < hi; i++ {
		y := out.row(i)
		y[0] = 0
		pairs.Forward(emb.row(i), sums.row(i), y, k.fields, k.dim)
	}
}

// fmGrad is its gradient, which sums once more.
type fmGrad struct{ fm }

func (k *fmGrad) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (k *fmGrad) do(l *Lane, s *step, lo, hi int) {
	emb, dy, sums, out := l.views[s.in[0]], l.views[s.in[1]], l.views[s.aside], l.views[s.out]
	for i := lo; i < hi; i++ {
		e, sum, d := emb.row(i), sums.row(i), out.row(i)
		clear(sum)
		for at := 0; at < len(e); at += k.dim {
			vec.Add(e[at:at+k.dim], sum)
		}
		if len(s.in) > 2 {
			copy(d, l.views[s.in[2]].row(i))
		} else {
			clear(d)
		}
		pairs.Backward(e, sum, dy.row(i), d, k.fields, k.dim)
	}
}
