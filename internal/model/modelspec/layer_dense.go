package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/graph"
)

// dense is x W + b of all inputs side by side.
func (n *network) dense(units uint32, in []graph.ID) (graph.ID, error) {
	if err := unitsFit(units); err != nil {
		return graph.None, err
	}
	return n.product("", n.joined(in), int(units))
}

func unitsFit(units uint32) error {
	if units < 1 || units > MaxUnits {
		return fmt.Errorf("it has %d units: give 1 to %d", units, MaxUnits)
	}
	return nil
}
