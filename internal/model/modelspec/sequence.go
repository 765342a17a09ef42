package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/graph"
)

// sequence is the i-th input, which has steps: [n t d].
func (n *network) sequence(in []graph.ID, i int) (graph.ID, error) {
	if s := n.shape(in[i]); len(s.Dims) != 2 {
		return graph.None, fmt.Errorf("its input %q has the shape %v: give it a sequence [n steps width], an output of a FIRSTN feature or of type STACK", n.words[i], s)
	}
	return in[i], nil
}

// keepLengths notes that a layer which makes a step of each of x's steps has x's lengths.
func (n *network) keepLengths(y, x graph.ID) {
	length, ragged := n.lengths[x]
	if !ragged || y == graph.None {
		return
	}
	if to, from := n.shape(y), n.shape(x); len(to.Dims) == 2 && to.Dims[0] == from.Dims[0] {
		n.lengths[y] = length
	}
}

// evenly is what each step of a sequence with lengths weighs in a mean, [n t]: 1 over the length, 0 behind it.
func (n *network) evenly(x graph.ID) graph.ID {
	zeros := n.Const(0, graph.PerSample(n.shape(x).Dims[0]))
	return n.add(graph.Softmax{Lengths: true}, zeros, n.lengths[x])
}
