package modelspec

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
)

// Normalize is spec with what it leaves out written down, so that a fact says all there is to
// know: a feature's and a float's field, a task's and a sample rule's name, the label where the only
// task has it, a table's dim where its segments have theirs, the optimizer of rows (dense_optimizer) and their
// first values (±0.05). A spec that says all this is returned as it is; none is changed.
func Normalize(spec *model.ModelSpec) *model.ModelSpec {
	if spec == nil {
		return nil
	}
	s := proto.CloneOf(spec)
	for _, f := range s.GetFeatures() {
		if f != nil && f.Field == "" && len(f.Cross) == 0 {
			f.Field = f.Name
		}
	}
	for _, f := range s.GetFloats() {
		if f != nil && f.Field == "" {
			f.Field = f.Name
		}
	}
	for _, t := range s.GetTasks() {
		if t != nil && t.Name == "" {
			t.Name = t.Logit
		}
	}
	if len(s.GetTasks()) == 1 && s.Label == nil && s.Tasks[0] != nil {
		s.Label, s.Tasks[0].Label = s.Tasks[0].Label, nil
	}
	for i, r := range s.GetSampleRules() {
		if r != nil && r.Name == "" {
			r.Name = fmt.Sprintf("rule %d", i+1)
		}
	}
	for _, t := range s.GetTables() {
		if t == nil {
			continue
		}
		if len(t.GetSegments()) == 0 {
			t.Optimizer, t.LearningRate = rowRule(s, t.Optimizer, t.LearningRate)
			t.Initializer = firstValues(t.Initializer)
			continue
		}
		sum := uint32(0)
		for _, g := range t.GetSegments() {
			if g != nil {
				g.Optimizer, g.LearningRate = rowRule(s, g.Optimizer, g.LearningRate)
				g.Initializer = firstValues(g.Initializer)
			}
			sum += min(g.GetDim(), MaxDim)
		}
		if t.Dim == 0 {
			t.Dim = sum
		}
	}
	if proto.Equal(s, spec) {
		return spec
	}
	return s
}

// rowRule is an optimizer and its learning rate: the dense one's where there is none.
func rowRule(s *model.ModelSpec, o *model.Optimizer, rate *model.LearningRate) (*model.Optimizer, *model.LearningRate) {
	if o.GetKind() != nil || s.GetDenseOptimizer().GetKind() == nil {
		return o, rate
	}
	if rate == nil && s.GetDenseLearningRate() != nil {
		rate = proto.CloneOf(s.GetDenseLearningRate())
	}
	rounding := o.GetStochasticRoundingFloat16()
	o = proto.CloneOf(s.GetDenseOptimizer())
	o.StochasticRoundingFloat16 = o.StochasticRoundingFloat16 || rounding
	return o, rate
}

func firstValues(i *model.Initializer) *model.Initializer {
	if i != nil {
		return i
	}
	return &model.Initializer{Kind: &model.Initializer_RandomUniform{RandomUniform: &model.RandomUniform{Min: -0.05, Max: 0.05}}}
}
