package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// slope is LEAKY_RELU's below 0, and startSlope PRELU's at first.
const slope, startSlope = 0.01, 0.25

// activate adds an activation of x. Its variable, if it has one, is called by the prefix.
func (n *network) activate(prefix string, x graph.ID, a model.Activation) (graph.ID, error) {
	switch a {
	case model.Activation_LINEAR:
		return x, nil
	case model.Activation_RELU:
		return n.add(graph.ReLU{}, x), nil
	case model.Activation_SIGMOID:
		return n.add(graph.Sigmoid{}, x), nil
	case model.Activation_TANH:
		return n.add(graph.Tanh{}, x), nil
	case model.Activation_SILU:
		return n.add(graph.SiLU{}, x), nil
	case model.Activation_GELU:
		return n.add(graph.GELU{}, x), nil
	case model.Activation_LEAKY_RELU:
		return n.add(graph.PReLU{}, x, n.Const(slope, graph.Fixed(n.shape(x).Last()))), nil
	case model.Activation_PRELU:
		alpha, err := n.weight(prefix+"alpha", startSlope, n.shape(x).Last())
		if err != nil {
			return graph.None, err
		}
		return n.add(graph.PReLU{}, x, alpha), nil
	}
	return graph.None, fmt.Errorf("it has the unknown activation %d: use one of spec.proto", a)
}
