package tfgraph

import (
	layers "github.com/monolith-go/monolith/kernels/graph"
)

// counts is which places of rows of size are before their sample's length, [n … size], given lengths [n 1].
func (l *lowering) counts(lengths tensor, rank, size int) tensor {
	places := make([]float32, size)
	for i := range places {
		places[i] = float32(i)
	}
	for range rank - 1 {
		lengths = l.expand(lengths, 1)
	}
	return l.one("Less", l.floats(places, size), lengths)
}

// softmax is along the last dimension, over the places that count.
func (l *lowering) softmax(node layers.Node, op layers.Softmax, in []tensor) tensor {
	if !op.Lengths {
		return l.one("Softmax", in[0])
	}
	rank := len(node.Shape.Dims)
	counts := l.counts(in[1], rank, node.Shape.Last())
	zero := l.float(0)
	x := l.choose(counts, in[0], l.float(-3e38)) // which exp makes 0
	e := l.one("Exp", l.less(x, l.along("Max", x, true, rank)))
	e = l.choose(counts, e, zero)
	sum := l.along("Sum", e, true, rank)
	return l.over(e, l.choose(l.one("Greater", sum, zero), sum, l.float(1)))
}

// gru makes its steps one after the other: as many as there are is written in the model.
func (l *lowering) gru(node layers.Node, op layers.GRU, in []tensor) tensor {
	steps, units := node.Shape.Dims[0], node.Shape.Dims[1]
	gates, candidate, wg, wc := in[0], in[1], in[2], in[3]
	var counts tensor
	if op.Lengths {
		counts = l.counts(in[len(in)-1], 1, steps)
	}
	at := func(x tensor, t, width int) tensor { return l.reshape(l.cut(float32s, x, 3, 1, t, t+1), width) }
	times := func(x, w tensor) tensor {
		return l.add("MatMul", "MatMul", attrs{"T": of(float32s), "transpose_a": truth(false), "transpose_b": truth(false)}, x, w)
	}
	state := l.fill(float32s, l.n, l.float(0), units)
	one := l.float(1)
	var all []tensor
	for t := range steps {
		both := l.one("Sigmoid", l.addUp(at(gates, t, 2*units), times(state, wg)))
		reset, update := l.cut(float32s, both, 2, 1, 0, units), l.cut(float32s, both, 2, 1, units, 2*units)
		fresh := l.one("Tanh", l.addUp(at(candidate, t, units), times(l.times(reset, state), wc)))
		if op.Attention {
			update = l.times(update, l.less(one, at(in[4], t, 1)))
		}
		next := l.addUp(l.times(update, state), l.times(l.less(one, update), fresh))
		if op.Lengths {
			taken := l.cut(booleans, counts, 2, 1, t, t+1)
			next = l.choose(taken, next, state)
		}
		state, all = next, append(all, next)
	}
	return l.stack(1, all...)
}
