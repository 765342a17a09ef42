package runtime

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
)

// What a step computes, in the order of its program's outputs; the gradients of the variables follow.
const (
	scoreOutput = iota
	lossOutput
	slopesOutput // the gradient by the input
	denseOutput
)

// programs compiles spec for training and for scoring: one graph, of which scoring is a part.
func programs(spec *model.ModelSpec) (train, score *nn.Program, err error) {
	if train, err = compile(spec, true); err != nil {
		return nil, nil, err
	}
	score, err = compile(spec, false)
	return train, score, err
}

func compile(spec *model.ModelSpec, train bool) (*nn.Program, error) {
	b := &graph.Builder{}
	x, label := b.Input("input", modelspec.InputSize(spec)), b.Input("label", 1)
	by := []graph.ID{x}
	vars, y := modelspec.Variables(spec), x
	for i, l := range spec.GetLayers() {
		kernel := b.Weight(vars[2*i].Name, int(vars[2*i].Shape[0]), int(vars[2*i].Shape[1]))
		bias := b.Weight(vars[2*i+1].Name, int(vars[2*i+1].Shape[0]))
		by = append(by, kernel, bias)
		y = b.Dense(l.GetName(), y, kernel, bias, false)
		if i == len(spec.GetLayers())-1 {
			break // its sigmoid is the score's, and the loss's
		}
		switch l.GetActivation() {
		case model.Activation_LINEAR:
		case model.Activation_RELU:
			y = b.Add("", graph.ReLU{}, y)
		case model.Activation_SIGMOID:
			y = b.Add("", graph.Sigmoid{}, y)
		default:
			return nil, fmt.Errorf("layer %q has the unknown activation %d: use LINEAR, RELU or SIGMOID", l.GetName(), l.GetActivation())
		}
	}
	b.Output("score", b.Add("", graph.Sigmoid{}, y))
	if train {
		loss := b.Add("", graph.CrossEntropy{}, y, label)
		b.Output("loss", loss)
		for i, d := range b.Gradients(b.Add("", graph.TimesBatch{}, loss), by...) {
			b.Output(fmt.Sprintf("gradient %d", i), d)
		}
	}
	g, err := b.Graph()
	if err != nil {
		return nil, err
	}
	return nn.Compile(g, nn.Options{})
}
