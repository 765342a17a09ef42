package nn

import (
	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/graph"
)

// gru computes a sequence step by step, each step for the whole batch: the products with the states before are
// gemm's, what lies between is by sample.
type gru struct {
	t, h               int
	attention, lengths bool
	first              int // the place of its operands among the step's
}

func gruOf(op graph.GRU, candidate graph.Shape, first int) *gru {
	return &gru{candidate.Dims[0], candidate.Dims[1], op.Attention, op.Lengths, first}
}

// A sample's floats aside: gates 2h, the candidate h, r ⊙ state h; for the gradient the gradients by the state h and by
// r ⊙ state h.
func (k *gru) aside() int { return 6 * k.h }

// cols are some columns of a value as a matrix.
func (v view) cols(from, count int) gemm.Mat {
	return gemm.Mat{V: v.v[from:], Rows: v.n, Cols: count, Stride: v.stride}
}

func (k *gru) operand(l *Lane, s *step, i int) view { return l.views[s.in[k.first+i]] }

func (k *gru) weight(l *Lane, s *step, i, cols int) gemm.Mat {
	return gemm.Of(k.operand(l, s, i).v, k.h, cols)
}

var onto = gemm.Op{Alpha: 1, Beta: 1}

func (k *gru) run(l *Lane, s *step) error {
	states := l.views[s.out]
	for l.time = 0; l.time < k.t && l.n > 0; l.time++ {
		if err := k.forwards(l, s, states); err != nil {
			return err
		}
		k.each(l, s, (*gruState)(k))
	}
	return nil
}

// each has f compute all samples.
func (k *gru) each(l *Lane, s *step, f rowKernel) {
	l.rows = rowJob{l, s, f}
	l.Pool.For(l.n, max(1, costly/k.h), &l.rows)
}

// forwards leaves step l.time's gates, candidate and r ⊙ state aside.
func (k *gru) forwards(l *Lane, s *step, states view) error {
	aside, h := l.views[s.aside], k.h
	k.each(l, s, (*gruInputs)(k))
	if l.time > 0 {
		if err := l.mm.Mul(aside.cols(0, 2*h), states.cols((l.time-1)*h, h), k.weight(l, s, 2, 2*h), onto); err != nil {
			return err
		}
	}
	k.each(l, s, (*gruGates)(k))
	if l.time > 0 {
		if err := l.mm.Mul(aside.cols(2*h, h), aside.cols(3*h, h), k.weight(l, s, 3, h), onto); err != nil {
			return err
		}
	}
	k.each(l, s, (*gruCandidate)(k))
	return nil
}

// counts says whether the step that is computed does for sample i.
func (k *gru) counts(l *Lane, s *step, i int) bool {
	return !k.lengths || float32(l.time) < l.views[s.in[len(s.in)-1]].row(i)[0]
}

// rest is 1 − attention.
func (k *gru) rest(l *Lane, s *step, i int) float64 {
	if !k.attention {
		return 1
	}
	return 1 - float64(k.operand(l, s, 4).row(i)[l.time])
}

// before is sample i's state before the step, or nil.
func (k *gru) before(l *Lane, states view, i int) []float32 {
	if l.time == 0 {
		return nil
	}
	return states.row(i)[(l.time-1)*k.h:][:k.h]
}

// gruInputs copies what the inputs give; nothing where the step does not count.
type gruInputs gru

func (f *gruInputs) do(l *Lane, s *step, lo, hi int) {
	k, h := (*gru)(f), f.h
	for i := lo; i < hi; i++ {
		aside := l.views[s.aside].row(i)
		if !k.counts(l, s, i) {
			clear(aside[:3*h])
			continue
		}
		copy(aside[:2*h], k.operand(l, s, 0).row(i)[l.time*2*h:])
		copy(aside[2*h:3*h], k.operand(l, s, 1).row(i)[l.time*h:])
	}
}

// gruGates makes gates of sums, and r ⊙ state.
type gruGates gru

func (f *gruGates) do(l *Lane, s *step, lo, hi int) {
	k, h := (*gru)(f), f.h
	states := l.views[s.out]
	if k.first > 0 {
		states = l.views[s.in[1]]
	}
	for i := lo; i < hi; i++ {
		aside := l.views[s.aside].row(i)
		sigmoid(aside[:2*h], aside[:2*h], nil)
		for j, v := range k.before(l, states, i) {
			aside[3*h+j] = aside[j] * v
		}
	}
}

// gruCandidate makes the candidate of its sum.
type gruCandidate gru

func (f *gruCandidate) do(l *Lane, s *step, lo, hi int) {
	for i := lo; i < hi; i++ {
		c := l.views[s.aside].row(i)[2*f.h : 3*f.h]
		tanh(c, c, nil)
	}
}

// gruState makes the state.
type gruState gru

func (f *gruState) do(l *Lane, s *step, lo, hi int) {
	k, h, states := (*gru)(f), f.h, l.views[s.out]
	for i := lo; i < hi; i++ {
		aside, before := l.views[s.aside].row(i), k.before(l, states, i)
		to := states.row(i)[l.time*h:][:h]
		if !k.counts(l, s, i) {
			clear(to)
			copy(to, before)
			continue
		}
		rest := k.rest(l, s, i)
		for j, c := range aside[2*h : 3*h] {
			keep := float64(aside[h+j]) * rest
			v := float64((1 - keep) * float64(c))
			if before != nil {
				v += float64(keep * float64(before[j]))
			}
			to[j] = float32(v)
		}
	}
}

// gruGrad goes back through the steps, and computes each once more.
type gruGrad struct{ gru }

func (k *gruGrad) run(l *Lane, s *step) error {
	aside, states, out, h := l.views[s.aside], l.views[s.in[1]], l.views[s.out], k.h
	for l.time = k.t - 1; l.time >= 0 && l.n > 0; l.time-- {
		if err := k.forwards(l, s, states); err != nil {
			return err
		}
		k.each(l, s, (*gruGradCandidate)(&k.gru))
		candidate, gates := out.cols((2*k.t+l.time)*h, h), out.cols(l.time*2*h, 2*h)
		if l.time > 0 {
			if err := l.mm.Mul(aside.cols(5*h, h), candidate, k.weight(l, s, 3, h).T(), gemm.Plain); err != nil {
				return err
			}
		}
		k.each(l, s, (*gruGradGates)(&k.gru))
		if l.time > 0 {
			if err := l.mm.Mul(aside.cols(4*h, h), gates, k.weight(l, s, 2, 2*h).T(), onto); err != nil {
				return err
			}
		}
	}
	return nil
}

// gruGradCandidate adds what comes for this step to the state's gradient, and makes that by the candidate, by u's
// gate and by attention.
type gruGradCandidate gru

func (f *gruGradCandidate) do(l *Lane, s *step, lo, hi int) {
	k, h := (*gru)(f), f.h
	for i := lo; i < hi; i++ {
		aside, out, before := l.views[s.aside].row(i), l.views[s.out].row(i), k.before(l, l.views[s.in[1]], i)
		gates, candidate := out[l.time*2*h:][:2*h], out[(2*k.t+l.time)*h:][:h]
		d, dy := aside[4*h:5*h], l.views[s.in[0]].row(i)[l.time*h:]
		if l.time == k.t-1 {
			clear(d)
		}
		for j := range d {
			d[j] += dy[j]
		}
		clear(gates)
		clear(candidate)
		along, rest := 0.0, k.rest(l, s, i)
		for j := 0; j < h && k.counts(l, s, i); j++ {
			d, u, c := float64(d[j]), float64(aside[h+j]), float64(aside[2*h+j])
			keep, old := u*rest, 0.0
			if before != nil {
				old = float64(before[j])
			}
			by := d * (old - c)
			candidate[j] = float32(d * (1 - keep) * (1 - float64(c*c)))
			gates[h+j] = float32(by * rest * u * (1 - u))
			along -= float64(by * u)
		}
		if k.attention {
			out[4*k.t*h+l.time] = float32(along)
		}
	}
}

// gruGradGates makes the gradient by r's gate, and what the state before gets without the gates' product.
type gruGradGates gru

func (f *gruGradGates) do(l *Lane, s *step, lo, hi int) {
	k, h := (*gru)(f), f.h
	for i := lo; i < hi; i++ {
		aside, out, before := l.views[s.aside].row(i), l.views[s.out].row(i), k.before(l, l.views[s.in[1]], i)
		gates, reset := out[l.time*2*h:][:2*h], out[(3*k.t+l.time)*h:][:h]
		clear(reset)
		if before == nil || !k.counts(l, s, i) {
			continue
		}
		copy(reset, aside[3*h:4*h])
		rest := k.rest(l, s, i)
		for j, v := range before {
			r, u, d, by := float64(aside[j]), float64(aside[h+j]), float64(aside[4*h+j]), float64(aside[5*h+j])
			gates[j] = float32(by * float64(v) * r * (1 - r))
			aside[4*h+j] = float32(float64(d*(u*rest)) + float64(by*r))
		}
	}
}
