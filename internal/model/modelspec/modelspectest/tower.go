// Package modelspectest has the plain tower of a spec for tests, which compare it with what roles run.
package modelspectest

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/densetest"
)

// NewTower makes the dense tower on InputSize inputs; its params are Variables in order.
func NewTower(spec *model.ModelSpec) (*densetest.Tower, error) {
	layers := make([]densetest.Layer, 0, len(spec.GetLayers()))
	in := modelspec.InputSize(spec)
	for _, l := range spec.GetLayers() {
		act, ok := activations[l.GetActivation()]
		if !ok {
			return nil, fmt.Errorf("layer %q has the unknown activation %d: use LINEAR, RELU or SIGMOID", l.GetName(), l.GetActivation())
		}
		layers = append(layers, densetest.Layer{In: in, Out: int(l.GetUnits()), Activation: act})
		in = int(l.GetUnits())
	}
	return densetest.New(layers)
}

var activations = map[model.Activation]densetest.Activation{
	model.Activation_LINEAR:  densetest.ActLinear,
	model.Activation_RELU:    densetest.ActReLU,
	model.Activation_SIGMOID: densetest.ActSigmoid,
}
