package modelspec

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/kernels/graph"
)

// gru runs a gated recurrent unit over a sequence, and with attention one whose update gates are multiplied by 1 less
// the second input, a score [n t] for each step, as in DIEN. It gives the last state [n h], and all of them [n t h].
// Where the sequence has lengths the last state is that of the last step that counts, 0 of none.
func (n *network) gru(units uint32, attention bool, in []graph.ID) ([]graph.ID, error) {
	if err := unitsFit(units); err != nil {
		return nil, err
	}
	if attention && len(in) != 2 {
		return nil, fmt.Errorf("it has %d inputs: give the sequence and its scores", len(in))
	}
	if !attention && len(in) != 1 {
		return nil, fmt.Errorf("it has %d inputs: give one", len(in))
	}
	x, err := n.sequence(in, 0)
	if err != nil {
		return nil, err
	}
	h, steps := int(units), n.shape(x).Dims[0]
	gates, gatesAgain, err := n.recurrent("gates/", x, 2*h, h, 1) // a bias of 1 keeps states and steps at first
	if err != nil {
		return nil, err
	}
	candidate, candidateAgain, err := n.recurrent("candidate/", x, h, h, 0)
	if err != nil {
		return nil, err
	}
	operands := []graph.ID{gates, candidate, gatesAgain, candidateAgain}
	if attention {
		if s := n.shape(in[1]); s.Size() != steps || s.Last() != steps && s.Last() != 1 {
			return nil, fmt.Errorf("its inputs %q and %q do not meet: a sequence %v needs a score for each step, and these are %v", n.words[0], n.words[1], n.shape(x), s)
		}
		operands = append(operands, n.add(graph.Reshape{Dims: []int{steps, 1}}, in[1]))
	}
	length, ragged := n.lengths[x]
	if ragged {
		operands = append(operands, length)
	}
	states := n.add(graph.GRU{Attention: attention, Lengths: ragged}, operands...)
	if ragged {
		n.lengths[states] = length
	}
	last := n.add(graph.Slice{From: (steps - 1) * h, To: steps * h}, n.add(graph.Reshape{Dims: []int{steps * h}}, states))
	return []graph.ID{last, states}, nil
}

// recurrent is what the steps of x give of so many columns, and the variable that the state of h is multiplied by.
func (n *network) recurrent(prefix string, x graph.ID, columns, h int, fill float32) (y, again graph.ID, err error) {
	drawn := float32(math.NaN())
	kernel, err := n.weight(prefix+"kernel", drawn, n.shape(x).Last(), columns)
	if err != nil {
		return graph.None, graph.None, err
	}
	bias, err := n.weight(prefix+"bias", fill, columns)
	if err != nil {
		return graph.None, graph.None, err
	}
	if again, err = n.weight(prefix+"recurrent", drawn, h, columns); err != nil {
		return graph.None, graph.None, err
	}
	return n.add(graph.MatMul{Bias: true, Precision: n.precision()}, x, kernel, bias), again, nil
}
