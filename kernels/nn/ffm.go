package nn

import "github.com/monolith-go/monolith/kernels/vec"

// ffm sums the products of embeddings two by two.
type ffm struct{ fields, dim int }

func (k *ffm) run(l *Lane, s *step) error {
	l.byRows(s, k, max(1, cheap/(k.fields*k.fields*k.dim))) // a sample's result is one float
	return nil
}

// of is the embedding of field i for field j.
func (k *ffm) of(v []float32, i, j int) []float32 { return v[(i*k.fields+j)*k.dim:][:k.dim] }

func (k *ffm) do(l *Lane, s *step, lo, hi int) {
	for n := lo; n < hi; n++ {
		v, sum := l.views[s.in[0]].row(n), float32(0)
		for i := range k.fields {
			for j := range i {
				sum += vec.Dot(k.of(v, i, j), k.of(v, j, i))
			}
		}
		l.views[s.out].row(n)[0] = sum
	}
}

// ffmGrad is its gradient.
type ffmGrad struct{ ffm }

func (k *ffmGrad) run(l *Lane, s *step) error {
	l.byRows(s, k, cheap)
	return nil
}

func (k *ffmGrad) do(l *Lane, s *step, lo, hi int) {
	for n := lo; n < hi; n++ {
		v, dy, out := l.views[s.in[0]].row(n), l.views[s.in[1]].row(n)[0], l.views[s.out].row(n)
		for i := range k.fields {
			clear(k.of(out, i, i))
			for j := range k.fields {
				if i == j {
					continue
				}
				d := k.of(out, i, j)
				for at, x := range k.of(v, j, i) {
					d[at] = dy * x
				}
			}
		}
	}
}
