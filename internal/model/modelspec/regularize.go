package modelspec

import (
	"fmt"
	"math"
	"path"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// Added is a loss that a layer adds to those of the tasks.
type Added struct {
	Name   string // "<layer>/kernel", "<layer>/bias" or "<layer>/activity"
	Sample bool   // each sample has its own, whose mean it is
}

// added is one in a graph: a number.
type added struct {
	Added
	loss graph.ID
}

// regularize adds the losses of the layer, whose variables are those from vars on and whose values are
// made. Scores have none.
func (n *network) regularize(vars int, made []graph.ID) error {
	l := n.layer
	if beside(l) {
		made = made[:1]
	}
	for _, r := range []struct {
		what string
		r    *model.Regularizer
		of   []graph.ID
		none string
	}{
		{"kernel", l.GetKernelRegularizer(), n.variables(vars, kernel), "no variable that is a matrix"},
		{"bias", l.GetBiasRegularizer(), n.variables(vars, bias), "no bias"},
		{"activity", l.GetActivityRegularizer(), made, "no value"},
	} {
		if r.r == nil {
			continue
		}
		l1, l2 := r.r.GetL1(), r.r.GetL2()
		switch {
		case !factor(l1) || !factor(l2) || l1 == 0 && l2 == 0:
			return fmt.Errorf("its %s_regularizer has l1 %g and l2 %g: give finite numbers, one of them above 0 and none below", r.what, l1, l2)
		case len(r.of) == 0:
			return fmt.Errorf("it has a %s_regularizer and, as a layer of kind %s, %s: take it away, or put it on a layer that has", r.what, kindName(l), r.none)
		}
		if r.what == "activity" {
			n.used[l.GetName()] = true // though nothing else may read it
		}
		if n.serving {
			continue
		}
		a := added{Added: Added{l.GetName() + "/" + r.what, r.what == "activity"}, loss: graph.None}
		for _, x := range r.of {
			loss := n.add(graph.Penalty{L1: l1, L2: l2}, x)
			if a.loss != graph.None {
				loss = n.add(graph.Add{}, a.loss, loss)
			}
			a.loss = loss
		}
		n.added = append(n.added, a)
	}
	return nil
}

func factor(x float32) bool { return x >= 0 && !math.IsInf(float64(x), 0) }

// variables are those from vars on that are so.
func (n *network) variables(vars int, is func(Variable) bool) (ids []graph.ID) {
	for i, v := range n.vars[vars:] {
		if is(v) {
			ids = append(ids, n.weights[vars+i])
		}
	}
	return ids
}

func kernel(v Variable) bool { return len(v.Shape) > 1 }
func bias(v Variable) bool   { return path.Base(v.Name) == "bias" }

// penalize adds to the mean loss of the samples what layers add, of which a step's loss has each once,
// whether it is the mean of the samples or their sum.
func (n *network) penalize(mean graph.ID) graph.ID {
	sum := func(total graph.ID, sample bool) graph.ID {
		for _, a := range n.added {
			if a.Sample == sample {
				total = n.Add("", graph.Add{}, total, a.loss)
			}
		}
		return total
	}
	total := sum(mean, true)
	if n.spec.GetReduction() == model.ModelSpec_SUM {
		total = n.Add("", graph.TimesBatch{}, total)
	}
	return sum(total, false)
}
