package ref

import (
	"math"

	"github.com/monolith-go/monolith/kernels/graph"
)

// gru reads the operands of GRU from place first on.
type gru struct {
	a                  *at
	t, h               int
	first              int
	attention, lengths bool
}

func (a *at) gruOf(op graph.GRU, first int) gru {
	s := a.shapes[first+1]
	return gru{a, s.Dims[0], s.Dims[1], first, op.Attention, op.Lengths}
}

func (g gru) of(operand, i int) number { return g.a.in[g.first+operand].of(i) }

// counts says whether step t of sample n does, and whether that is sure.
func (g gru) counts(n, t int) (yes, sure bool) {
	if !g.lengths {
		return true, true
	}
	length := g.a.in[len(g.a.in)-1].of(n)
	return float64(t) < length.v, length.e == 0 || math.Abs(float64(t)-length.v) > length.e
}

// times is start and a row times columns of a weight of so many.
func (g gru) times(start number, row []number, weight, cols, col int) number {
	s := chain{}
	s.start(start.v, start.e)
	for i, x := range row {
		w := g.of(weight, i*cols+col)
		s.add(x.v, w.v, x.e, w.e)
	}
	return number{s.sum, s.bound()}
}

// step is what comes of step t: r, u before attention, r ⊙ state, and c. state is nil in the first step.
func (g gru) step(n, t int, state []number) (r, u, reset, c []number) {
	at := n*g.t + t
	for j := range g.h {
		r = append(r, g.times(g.of(0, at*2*g.h+j), state, 2, 2*g.h, j).through(sigmoid).round())
		u = append(u, g.times(g.of(0, at*2*g.h+g.h+j), state, 2, 2*g.h, g.h+j).through(sigmoid).round())
	}
	for j, x := range state {
		reset = append(reset, r[j].mul(x).round())
	}
	for j := range g.h {
		c = append(c, g.times(g.of(1, at*g.h+j), reset, 3, g.h, j).through(math.Tanh).round())
	}
	return r, u, reset, c
}

// rest is 1 − attention at step t.
func (g gru) rest(n, t int) number {
	if !g.attention {
		return exact(1)
	}
	return exact(1).sub(g.of(4, n*g.t+t))
}

func (g gru) states() {
	for n := range g.a.n {
		var state []number
		for t := range g.t {
			next := make([]number, g.h)
			yes, sure := g.counts(n, t)
			if yes {
				_, u, _, c := g.step(n, t, state)
				for j := range next {
					keep := u[j].mul(g.rest(n, t))
					next[j] = exact(1).sub(keep).mul(c[j])
					if state != nil {
						next[j] = next[j].add(keep.mul(state[j]))
					}
					next[j] = next[j].round()
				}
			} else {
				copy(next, state)
			}
			if !sure {
				unsure(next)
			}
			for j, x := range next {
				g.a.out[(n*g.t+t)*g.h+j], g.a.e[(n*g.t+t)*g.h+j] = x.both()
			}
			state = next
		}
	}
}

func (g gru) put(at int, x number) { g.a.out[at], g.a.e[at] = x.round().both() }

func (g gru) grad() {
	size := g.a.node.Shape.Size()
	for n := range g.a.n {
		d := make([]number, g.h)
		for t := g.t - 1; t >= 0; t-- {
			for j := range d {
				d[j] = d[j].add(g.a.in[0].of((n*g.t+t)*g.h + j)).round()
			}
			yes, sure := g.counts(n, t)
			if yes {
				d = g.back(n, t, n*size, d)
			}
			if !sure {
				unsure(d)
				for i := range size {
					g.a.e[n*size+i] = math.Inf(1)
				}
			}
		}
	}
}

// back is the gradient by the state before step t, given that by the one after; the rest of it is put at from on.
func (g gru) back(n, t, from int, d []number) []number {
	var state []number
	if t > 0 {
		for j := range g.h {
			state = append(state, g.a.in[1].of((n*g.t+t-1)*g.h+j))
		}
	}
	r, u, reset, c := g.step(n, t, state)
	rest, along := g.rest(n, t), exact(0)
	gates, candidate, before := make([]number, 2*g.h), make([]number, g.h), make([]number, g.h)
	one := exact(1)
	for j := range g.h {
		keep, old := u[j].mul(rest), exact(0)
		if state != nil {
			old = state[j]
		}
		candidate[j] = d[j].mul(one.sub(keep)).mul(one.sub(c[j].mul(c[j]))).round()
		by := d[j].mul(old.sub(c[j]))
		gates[g.h+j] = by.mul(rest).mul(u[j]).mul(one.sub(u[j])).round()
		along = along.sub(by.mul(u[j]))
		before[j] = d[j].mul(keep)
	}
	for j := range state {
		s := chain{}
		for i, x := range candidate {
			w := g.of(3, j*g.h+i)
			s.add(x.v, w.v, x.e, w.e)
		}
		by := number{s.sum, s.bound()}
		gates[j] = by.mul(state[j]).mul(r[j]).mul(one.sub(r[j])).round()
		before[j] = before[j].add(by.mul(r[j])).round()
	}
	for j := range state {
		s := chain{}
		s.start(before[j].both())
		for i, x := range gates {
			w := g.of(2, j*2*g.h+i)
			s.add(x.v, w.v, x.e, w.e)
		}
		before[j] = number{s.sum, s.bound()}
	}
	for j := range g.h {
		g.put(from+t*2*g.h+j, gates[j])
		g.put(from+t*2*g.h+g.h+j, gates[g.h+j])
		g.put(from+(2*g.t+t)*g.h+j, candidate[j])
		if state != nil {
			g.put(from+(3*g.t+t)*g.h+j, reset[j])
		}
	}
	if g.attention {
		g.put(from+4*g.t*g.h+t, along)
	}
	return before
}
