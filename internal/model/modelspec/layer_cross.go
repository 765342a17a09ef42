package modelspec

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// cross is x0 * (W x + b) + x, depth times, of all inputs side by side.
func (n *network) cross(m *model.Cross, in []graph.ID) (graph.ID, error) {
	if m.GetDepth() < 1 || m.GetDepth() > MaxLayers {
		return graph.None, fmt.Errorf("it has depth %d: give 1 to %d", m.GetDepth(), MaxLayers)
	}
	x0 := n.joined(in)
	width := n.shape(x0).Last()
	if int64(m.GetRank()) > int64(width) {
		return graph.None, fmt.Errorf("it has rank %d, and its input %d numbers: give a rank below that, or 0 for a full one", m.GetRank(), width)
	}
	x, drawn := x0, float32(math.NaN())
	for i := range m.GetDepth() {
		prefix, name := fmt.Sprintf("%d/", i), fmt.Sprintf("%s:cross.%d", n.layer.GetName(), i)
		var kernels [2]graph.ID
		shapes := [][2]int{{width, width}}
		names := []string{"kernel"}
		if rank := int(m.GetRank()); rank > 0 {
			shapes, names = [][2]int{{width, rank}, {rank, width}}, []string{"u", "v"}
		}
		for k, s := range shapes {
			w, err := n.weight(prefix+names[k], drawn, s[0], s[1])
			if err != nil {
				return graph.None, err
			}
			kernels[k] = w
		}
		bias, err := n.weight(prefix+"bias", 0, width)
		if err != nil {
			return graph.None, err
		}
		if m.GetRank() > 0 {
			x = n.CrossLowRank(name, x0, x, kernels[0], kernels[1], bias, n.precision())
		} else {
			x = n.Cross(name, x0, x, kernels[0], bias, n.precision())
		}
	}
	return x, nil
}
