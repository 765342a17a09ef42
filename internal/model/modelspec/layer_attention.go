package modelspec

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// attention weighs the steps of a sequence, its second input, by the first, a query as wide as a step. Each
// step's score is an MLP's of query, step, their difference and their product, as in DIN; the steps are weighed
// by the scores' softmax, or by the scores themselves. It gives the weighed sum [n d], and the weights [n t].
func (n *network) attention(m *model.Attention, in []graph.ID) ([]graph.ID, error) {
	if len(in) != 2 {
		return nil, fmt.Errorf("it has %d inputs: give the query and the sequence", len(in))
	}
	if len(m.GetUnits()) > MaxLayers {
		return nil, fmt.Errorf("it has %d numbers of units: %d are allowed", len(m.GetUnits()), MaxLayers)
	}
	q := n.flat(in[0])
	k, err := n.sequence(in, 1)
	if err != nil {
		return nil, err
	}
	if query, steps := n.shape(q), n.shape(k); query.Last() != steps.Last() {
		return nil, fmt.Errorf("its inputs %q and %q do not meet: the query %v is to be as wide as a step of the sequence %v", n.words[0], n.words[1], query, steps)
	}
	scores, err := n.scores(m, q, k)
	if err != nil {
		return nil, err
	}
	weights := n.add(graph.Reshape{Dims: n.shape(k).Dims[:1]}, scores)
	length, ragged := n.lengths[k]
	switch {
	case m.GetRaw() && ragged:
		weights = n.add(graph.Mask{}, weights, n.evenly(k))
	case m.GetRaw():
	case ragged:
		weights = n.add(graph.Softmax{Lengths: true}, weights, length)
	default:
		weights = n.add(graph.Softmax{}, weights)
	}
	return []graph.ID{n.Weigh(n.layer.GetName()+":weigh", weights, k), weights}, nil
}

// scores is the MLP's answer to each step of k, [n t 1].
func (n *network) scores(m *model.Attention, q, k graph.ID) (graph.ID, error) {
	between := model.Activation_SIGMOID
	if m.Activation != nil {
		between = m.GetActivation()
	}
	units := append(append([]uint32(nil), m.GetUnits()...), 1)
	for _, u := range units {
		if err := unitsFit(u); err != nil {
			return graph.None, err
		}
	}
	width, first, drawn := n.shape(k).Last(), int(units[0]), float32(math.NaN())
	var w [3]graph.ID
	for i, name := range []string{"0/query", "0/key", "0/product"} {
		made, err := n.weight(name, drawn, width, first)
		if err != nil {
			return graph.None, err
		}
		w[i] = made
	}
	bias, err := n.weight("0/bias", 0, first)
	if err != nil {
		return graph.None, err
	}
	y := n.Attend(n.layer.GetName()+":attend", q, k, w[0], w[1], w[2], bias, n.precision())
	for i, u := range units[1:] {
		if y, err = n.activate(fmt.Sprintf("%d/", i), y, between); err != nil {
			return graph.None, err
		}
		if y, err = n.product(fmt.Sprintf("%d/", i+1), y, int(u)); err != nil {
			return graph.None, err
		}
	}
	return y, nil
}
