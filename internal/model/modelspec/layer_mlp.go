package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// mlp is dense layers, one on the other.
func (n *network) mlp(m *model.Mlp, in []graph.ID) (y graph.ID, err error) {
	if len(m.GetUnits()) == 0 || len(m.GetUnits()) > MaxLayers {
		return graph.None, fmt.Errorf("it has %d numbers of units: give 1 to %d", len(m.GetUnits()), MaxLayers)
	}
	between := model.Activation_RELU
	if m.Activation != nil {
		between = m.GetActivation()
	}
	y = n.joined(in)
	for i, units := range m.GetUnits() {
		if err := unitsFit(units); err != nil {
			return graph.None, err
		}
		if i > 0 {
			if y, err = n.activate(fmt.Sprintf("%d/", i-1), y, between); err != nil {
				return graph.None, err
			}
		}
		if y, err = n.product(fmt.Sprintf("%d/", i), y, int(units)); err != nil {
			return graph.None, err
		}
	}
	return y, nil
}
