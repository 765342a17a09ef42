package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// logQ is the logarithm of how likely a sample's candidate is to be in a batch, [n 1], which IN_BATCH_SOFTMAX
// subtracts from its logits. What the task names is how many steps lie between two occurrences of it, as a segment
// of optimizer batch_softmax estimates; from 1 on, for a candidate is in a batch once.
func (n *network) logQ(t *model.Task) (graph.ID, error) {
	word := t.GetLogQ()
	for _, o := range n.outputs {
		if o.Name != word {
			continue
		}
		if o.Type == model.Output_NONE || len(o.Slices) != 1 || !estimates(n.spec, o.Slices[0]) {
			return graph.None, fmt.Errorf("its log_q %q is no estimate of how often a candidate comes: let the output have one slice, a segment of dim 1 whose optimizer is batch_softmax", word)
		}
		n.used[word] = true
		beyond := n.Add("", graph.ReLU{}, n.Add("", graph.Scale{Factor: 1, Shift: -1}, n.values[word][0]))
		return n.Add("log_q of "+t.GetName(), graph.Scale{Factor: -1}, n.Add("", graph.Log1p{}, beyond)), nil
	}
	return graph.None, fmt.Errorf("its log_q %q is no output: declare one of a segment whose optimizer is batch_softmax", word)
}

// estimates says whether a slice is a segment that batch_softmax keeps.
func estimates(spec *model.ModelSpec, s Slice) bool {
	at := 0
	for _, segment := range Table(spec, Feature(spec, s.Feature).GetTable()).GetSegments() {
		if at == s.From {
			return s.To == s.From+1 && segment.GetDim() == 1 && segment.GetOptimizer().GetBatchSoftmax() != nil
		}
		at += int(segment.GetDim())
	}
	return false
}
