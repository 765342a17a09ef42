package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/graph"
)

// ffm is the sum of the inner products of all pairs of an input's rows, of row i's part for j with row
// j's part for i; the parts of a row are as many as there are rows, and equally long.
func (n *network) ffm(in []graph.ID) (graph.ID, error) {
	x, err := n.single(in)
	if err != nil {
		return graph.None, err
	}
	s := n.shape(x)
	if len(s.Dims) != 2 || s.Dims[1]%s.Dims[0] != 0 {
		return graph.None, fmt.Errorf("its input %q has the shape %v: give it an output of type STACK whose slices are as wide as a multiple of their number", n.words[0], s)
	}
	fields := s.Dims[0]
	return n.add(graph.FFM{}, n.add(graph.Reshape{Dims: []int{fields, fields, s.Dims[1] / fields}}, x)), nil
}
