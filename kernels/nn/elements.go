package nn

import (
	"github.com/monolith-go/monolith/kernels/graph"
)

// Floats that a thread takes at once, of what moves or adds and of what computes exp.
const (
	cheap  = 4096
	costly = 256
)

// function computes dst of x and y, all equally long; y is nil where there is one operand.
type function func(dst, x, y []float32)

// elementwise is the function of an operation by element, or nil.
func elementwise(op graph.Op) (f function, grain int) {
	switch op := op.(type) {
	case graph.Const:
		return func(dst, _, _ []float32) {
			for i := range dst {
				dst[i] = op.Value
			}
		}, cheap
	case graph.Add:
		return add, cheap
	case graph.Mul:
		return mul, cheap
	case graph.Scale:
		return func(dst, x, _ []float32) { scale(dst, x, op.Factor, op.Shift) }, cheap
	case graph.ReLU:
		return relu, cheap
	case graph.Mask:
		return mask, cheap
	case graph.Reshape:
		return moved, cheap
	}
	return activation(op), costly
}

// byElement computes a function of each place, on all threads.
type byElement struct {
	f     function
	grain int
}

func (k *byElement) run(l *Lane, s *step) error {
	l.byRows(s, k, k.grain)
	return nil
}

func (k *byElement) do(l *Lane, s *step, lo, hi int) {
	dst := l.views[s.out]
	x, y := dst, view{}
	if len(s.in) > 0 {
		x = l.views[s.in[0]]
	}
	two := len(s.in) > 1
	if two {
		y = l.views[s.in[1]]
	}
	if dst.whole() && x.whole() && y.whole() {
		if two {
			k.f(dst.span(lo, hi), x.span(lo, hi), y.span(lo, hi))
		} else {
			k.f(dst.span(lo, hi), x.span(lo, hi), nil)
		}
		return
	}
	for i := lo; i < hi; i++ {
		if two {
			k.f(dst.row(i), x.row(i), y.row(i))
		} else {
			k.f(dst.row(i), x.row(i), nil)
		}
	}
}

// byRow computes each row of the result of the rows of one or two operands.
type byRow struct {
	grain int
	f     func(dst, x, y []float32, n int)
}

func (k *byRow) run(l *Lane, s *step) error {
	l.byRows(s, k, k.grain)
	return nil
}

func (k *byRow) do(l *Lane, s *step, lo, hi int) {
	dst, x := l.views[s.out], l.views[s.in[0]]
	for i := lo; i < hi; i++ {
		if len(s.in) > 1 {
			k.f(dst.row(i), x.row(i), l.views[s.in[1]].row(i), l.n)
		} else {
			k.f(dst.row(i), x.row(i), nil, l.n)
		}
	}
}

// rowKernel computes rows lo to hi of its result.
type rowKernel interface {
	do(l *Lane, s *step, lo, hi int)
}

// rowJob is a kernel's work for the pool.
type rowJob struct {
	l *Lane
	s *step
	k rowKernel
}

// Do computes rows lo to hi.
func (j *rowJob) Do(lo, hi int) { j.k.do(j.l, j.s, lo, hi) }

// byRows has k compute all rows of s's result, so many floats at once.
func (l *Lane) byRows(s *step, k rowKernel, floats int) {
	out := l.views[s.out]
	l.rows = rowJob{l, s, k}
	l.Pool.For(out.n, max(1, floats/max(1, out.width)), &l.rows)
}
