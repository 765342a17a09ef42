package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// What is added to a variance, and the least square of a length, that norm divides by.
const layerEpsilon, lengthEpsilon = 1e-5, 1e-12

// norm makes each row of its input one of mean 0 and variance 1, with a gain and a shift, or one of
// length 1.
func (n *network) norm(m *model.Norm, in []graph.ID) (graph.ID, error) {
	x, err := n.single(in)
	if err != nil {
		return graph.None, err
	}
	switch m.GetType() {
	case model.Norm_L2:
		return n.add(graph.L2Norm{Epsilon: lengthEpsilon}, x), nil
	case model.Norm_LAYER:
		gain, err := n.weight("gain", 1, n.shape(x).Last())
		if err != nil {
			return graph.None, err
		}
		shift, err := n.weight("shift", 0, n.shape(x).Last())
		if err != nil {
			return graph.None, err
		}
		return n.LayerNorm(n.layer.GetName()+":norm", x, gain, shift, layerEpsilon), nil
	}
	return graph.None, fmt.Errorf("it has the unknown type %d: use LAYER or L2", m.GetType())
}
