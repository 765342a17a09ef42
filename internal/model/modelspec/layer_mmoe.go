package modelspec

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// MaxExperts bounds the experts of a layer, or of a level.
const MaxExperts = 256

// mmoe mixes experts, each an MLP of all inputs side by side, by a softmax gate for each task.
func (n *network) mmoe(m *model.Mmoe, in []graph.ID) ([]graph.ID, error) {
	if err := fits("experts", m.GetExperts(), 1, MaxExperts); err != nil {
		return nil, err
	}
	if err := fits("tasks", m.GetTasks(), 1, MaxTasks); err != nil {
		return nil, err
	}
	x := n.joined(in)
	experts, err := n.experts("", int(m.GetExperts()), m.GetUnits(), x)
	if err != nil {
		return nil, err
	}
	var out []graph.ID
	for t := range m.GetTasks() {
		y, err := n.gated(fmt.Sprintf("gate_%d", t), x, experts)
		if err != nil {
			return nil, err
		}
		out = append(out, y)
	}
	return out, nil
}

// experts are count MLPs of x, with RELU behind each layer, the last one too.
func (n *network) experts(prefix string, count int, units []uint32, x graph.ID) ([]graph.ID, error) {
	if err := fits("numbers of units", uint32(len(units)), 1, MaxLayers); err != nil {
		return nil, err
	}
	experts := make([]graph.ID, count)
	for e := range experts {
		y := x
		for i, u := range units {
			if err := unitsFit(u); err != nil {
				return nil, err
			}
			product, err := n.product(fmt.Sprintf("%sexpert_%d/%d/", prefix, e, i), y, int(u))
			if err != nil {
				return nil, err
			}
			y = n.add(graph.ReLU{}, product)
		}
		experts[e] = y
	}
	return experts, nil
}

// gated is the mean of experts by the softmax of x times a variable of that name.
func (n *network) gated(name string, x graph.ID, experts []graph.ID) (graph.ID, error) {
	kernel, err := n.weight(name, float32(math.NaN()), n.shape(x).Last(), len(experts))
	if err != nil {
		return graph.None, err
	}
	gate := n.add(graph.MatMul{Precision: n.precision()}, x, kernel)
	return n.Mix(n.layer.GetName()+":"+name, gate, experts...), nil
}

func fits(what string, count, least, most uint32) error {
	if count < least || count > most {
		return fmt.Errorf("it has %d %s: give %d to %d", count, what, least, most)
	}
	return nil
}
