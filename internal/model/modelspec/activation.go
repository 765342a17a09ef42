package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// activate adds an activation of x.
func (n *network) activate(x graph.ID, a model.Activation) (graph.ID, error) {
	switch a {
	case model.Activation_LINEAR:
		return x, nil
	case model.Activation_RELU:
		return n.add(graph.ReLU{}, x), nil
	case model.Activation_SIGMOID:
		return n.add(graph.Sigmoid{}, x), nil
	case model.Activation_TANH:
		return n.add(graph.Tanh{}, x), nil
	case model.Activation_GELU, model.Activation_PRELU, model.Activation_LEAKY_RELU, model.Activation_SILU:
		return graph.None, fmt.Errorf("the activation %v is not computed by this build: use RELU, SIGMOID, TANH or LINEAR", a)
	}
	return graph.None, fmt.Errorf("it has the unknown activation %d: use one of spec.proto", a)
}
