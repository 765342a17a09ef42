package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/graph"
)

// fm is the sum of the inner products of all pairs of an input's rows.
func (n *network) fm(in []graph.ID) (graph.ID, error) {
	x, err := n.single(in)
	if err != nil {
		return graph.None, err
	}
	if s := n.shape(x); len(s.Dims) != 2 {
		return graph.None, fmt.Errorf("its input %q has the shape %v: give it an output of type STACK", n.words[0], s)
	}
	return n.add(graph.FM{}, x), nil
}
