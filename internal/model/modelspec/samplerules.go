package modelspec

import (
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/events/model"
)

// reweighted says whether rules change what samples count in the losses.
func reweighted(spec *model.ModelSpec) bool {
	for _, r := range spec.GetSampleRules() {
		if reweighs(r) {
			return true
		}
	}
	return false
}

func reweighs(r *model.SampleRule) bool {
	return r.GetWeigh() != nil || r.GetNegatives() != nil && NegativesOf(r.GetNegatives()).Weight != 1 || r.GetDrop().GetCorrection() == model.SampleRule_WEIGHT
}

// DropRate is the share of its samples that a rule drops: all where it says none.
func DropRate(d *model.SampleRule_Drop) float64 {
	if d.Rate == nil {
		return 1
	}
	return d.GetRate()
}

// sampleRules checks which samples are learnt.
func (c *complaints) sampleRules(spec *model.ModelSpec) {
	c.path = "sample_rules"
	if n := len(spec.GetSampleRules()); n > MaxRules {
		c.add("the model has %d sample rules: %d are allowed", n, MaxRules)
		return
	}
	tasks, inBatch := map[string]bool{}, ""
	for _, t := range Tasks(spec) {
		tasks[t.GetName()] = true
		if l := t.GetLoss(); l == model.Task_IN_BATCH_SOFTMAX || l == model.Task_IN_BATCH_AUC {
			inBatch = t.GetName()
		}
	}
	seen := map[string]bool{}
	for i, r := range spec.GetSampleRules() {
		c.at("sample_rules", i)
		what := fmt.Sprintf("sample rule %q", r.GetName())
		c.name(fmt.Sprintf("sample rule %d", i+1), r.GetName())
		c.once(seen, what, r.GetName())
		if n := len(r.GetWhere()); n > MaxWhere {
			c.add("%s has %d conditions: %d are allowed", what, n, MaxWhere)
		}
		for k, w := range r.GetWhere() {
			c.condition(fmt.Sprintf("%s, condition %d,", what, k+1), w, tasks)
		}
		c.action(what, r)
		if n := r.GetNegatives(); n != nil {
			c.negatives(what, spec, n)
		}
		if reweighs(r) && inBatch != "" {
			c.add("%s changes what samples count, and task %q compares the samples of a batch with one another, whatever they count: keep or drop samples alone", what, inBatch)
		}
	}
}

// action checks what a rule does.
func (c *complaints) action(what string, r *model.SampleRule) {
	switch a := r.GetAction().(type) {
	case *model.SampleRule_Keep_:
		if len(r.GetWhere()) == 0 {
			c.add("%s keeps every sample: say which in where", what)
		}
	case *model.SampleRule_Drop_:
		rate := DropRate(a.Drop)
		if !(rate > 0 && rate <= 1) { // written so that NaN fails
			c.add("%s drops a share of %g: give a rate above 0, up to 1", what, rate)
		}
		if len(r.GetWhere()) == 0 && rate == 1 {
			c.add("%s drops every sample: say which in where, or give a rate below 1", what)
		}
		switch a.Drop.GetCorrection() {
		case model.SampleRule_NONE:
		case model.SampleRule_WEIGHT:
			if rate == 1 {
				c.add("%s drops all of its samples and has a correction, for which none is left: take it away, or give a rate below 1", what)
			}
		default:
			c.add("%s has the unknown correction %d: use NONE or WEIGHT", what, a.Drop.GetCorrection())
		}
	case *model.SampleRule_Weigh_:
		if w := a.Weigh.GetWeight(); !(w > 0 && w <= math.MaxFloat32) {
			c.add("%s has the weight %g: give a finite number above 0", what, w)
		}
	case *model.SampleRule_Negatives_:
	default:
		c.add("%s does nothing: give it keep, drop, weigh or negatives", what)
	}
}

// condition checks one of a rule.
func (c *complaints) condition(what string, w *model.Condition, tasks map[string]bool) {
	switch {
	case (w.GetField() == "") == (w.GetLabel() == ""):
		c.add("%s must name a field of the record, or a task as its label, and not both", what)
	case len(w.GetField()) > MaxName:
		c.add("%s reads a field of %d bytes: %d are allowed", what, len(w.GetField()), MaxName)
	case w.GetLabel() != "" && !tasks[w.GetLabel()]:
		c.add("%s is about the label of %q, which is no task: name one", what, w.GetLabel())
	}
	if n := max(len(w.GetIn()), len(w.GetStartsWith()), len(w.GetEndsWith())); n > MaxIn {
		c.add("%s lists %d values: %d are allowed", what, n, MaxIn)
	}
	c.affixes(what, w)
	if w.AtLeast == nil && w.Below == nil {
		return
	}
	if len(w.GetIn()) > 0 {
		c.add("%s has both in and a range: make two conditions of it", what)
	}
	least, below := Range(w)
	if math.IsNaN(least) || math.IsNaN(below) || least >= below {
		c.add("%s has at_least %g and below %g, between which nothing lies: give two numbers, the lower one first", what, least, below)
	}
}

// affixes checks what a condition says of texts and of lists, which labels are not.
func (c *complaints) affixes(what string, w *model.Condition) {
	texts := len(w.GetStartsWith()) > 0 || len(w.GetEndsWith()) > 0
	if w.GetLabel() != "" && (texts || w.GetEvery()) {
		c.add("%s is about a label, which is one number: starts_with, ends_with and every are about fields", what)
	}
	if slices.Contains(w.GetStartsWith(), "") || slices.Contains(w.GetEndsWith(), "") {
		c.add("%s has an empty text in starts_with or ends_with, as every text begins and ends: leave it out", what)
	}
	if texts && (len(w.GetIn()) > 0 || w.AtLeast != nil || w.Below != nil) {
		c.add("%s has both starts_with or ends_with and values: make two conditions of it", what)
	}
	if len(w.GetStartsWith()) > 0 && len(w.GetEndsWith()) > 0 {
		c.add("%s has both starts_with and ends_with: make two conditions of it", what)
	}
}

// Range is that of a condition: infinite where it says none.
func Range(w *model.Condition) (least, below float64) {
	least, below = math.Inf(-1), math.Inf(1)
	if w.AtLeast != nil {
		least = w.GetAtLeast()
	}
	if w.Below != nil {
		below = w.GetBelow()
	}
	return least, below
}
