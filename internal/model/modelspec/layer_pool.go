package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// pool makes one row of its input's.
func (n *network) pool(m *model.Pool, in []graph.ID) (graph.ID, error) {
	x, err := n.single(in)
	if err != nil {
		return graph.None, err
	}
	if s := n.shape(x); len(s.Dims) != 2 {
		return graph.None, fmt.Errorf("its input %q has the shape %v: give it an output of type STACK", n.words[0], s)
	}
	switch m.GetType() {
	case model.Pool_SUM:
		return n.add(graph.Sum{}, x), nil
	case model.Pool_MEAN:
		return n.Mean(n.layer.GetName()+":mean", 0, x), nil
	}
	return graph.None, fmt.Errorf("it has the unknown type %d: use SUM or MEAN", m.GetType())
}
