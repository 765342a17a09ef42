package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/graph"
)

// dot is the inner product of two inputs: one number.
func (n *network) dot(in []graph.ID) (graph.ID, error) {
	if len(in) != 2 {
		return graph.None, fmt.Errorf("it has %d inputs: give two", len(in))
	}
	y, err := n.each(graph.Mul{}, in) // which says whether they meet
	if err != nil {
		return graph.None, err
	}
	n.towers[n.layer.GetName()] = []graph.ID{n.flat(in[0]), n.flat(in[1])}
	return n.add(graph.Sum{Axis: 1}, n.add(graph.Reshape{Dims: []int{1, n.shape(y).Size()}}, y)), nil
}
