package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// sum adds the inputs, from the first on, and a bias last.
func (n *network) sum(m *model.AddLayer, in []graph.ID) (graph.ID, error) {
	y, err := n.each(graph.Add{}, in)
	if err != nil || !m.GetBias() {
		return y, err
	}
	bias, err := n.weight("bias", 0, n.shape(y).Last())
	if err != nil {
		return graph.None, err
	}
	return n.add(graph.AddRow{}, y, bias), nil
}

// each puts the inputs, which are of one shape, together by op, from the first on.
func (n *network) each(op graph.Op, in []graph.ID) (graph.ID, error) {
	first := n.shape(in[0])
	for i, x := range in[1:] {
		if s := n.shape(x); !s.Equal(first) {
			return graph.None, fmt.Errorf("its inputs %q and %q do not meet: the shapes are %v and %v, make them equal", n.words[0], n.words[i+1], first, s)
		}
	}
	y := in[0]
	for _, x := range in[1:] {
		y = n.add(op, y, x)
	}
	return y, nil
}
