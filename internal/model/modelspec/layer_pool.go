package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// pool makes one row of its input's; of a sequence with lengths only the steps within them count, and of none
// of them it is 0.
func (n *network) pool(m *model.Pool, in []graph.ID) (graph.ID, error) {
	if _, err := n.single(in); err != nil {
		return graph.None, err
	}
	x, err := n.sequence(in, 0)
	if err != nil {
		return graph.None, err
	}
	_, ragged := n.lengths[x]
	name := n.layer.GetName() + ":pool"
	switch m.GetType() {
	case model.Pool_SUM:
		if !ragged {
			return n.add(graph.Sum{}, x), nil
		}
		ones := n.Const(1, graph.PerSample(n.shape(x).Dims[0]))
		return n.Weigh(name, n.add(graph.Mask{}, ones, n.evenly(x)), x), nil
	case model.Pool_MEAN:
		if !ragged {
			return n.Mean(n.layer.GetName()+":mean", 0, x), nil
		}
		return n.Weigh(name, n.evenly(x), x), nil
	}
	return graph.None, fmt.Errorf("it has the unknown type %d: use SUM or MEAN", m.GetType())
}
