// Package samplerule is what a declared model's rules say of which samples are learnt, and what is wrong with them.
package samplerule

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/model"
)

// Bounds of one rule.
const (
	MaxWhere = 16   // conditions
	MaxIn    = 4096 // values of a condition
)

// Reweighted says whether rules change what samples count in the losses.
func Reweighted(spec *model.ModelSpec) bool {
	for _, r := range spec.GetSampleRules() {
		if Reweighs(r) {
			return true
		}
	}
	return false
}

// Reweighs says so of one rule.
func Reweighs(r *model.SampleRule) bool {
	return r.GetWeigh() != nil || r.GetReweight() != nil || r.GetNegatives() != nil && NegativesOf(r.GetNegatives()).Weight != 1 || r.GetDrop().GetCorrection() == model.SampleRule_WEIGHT
}

// DropRate is the share of its samples that a rule drops: all where it says none.
func DropRate(d *model.SampleRule_Drop) float64 {
	if d.Rate == nil {
		return 1
	}
	return d.GetRate()
}

// complaints are what is wrong with one rule of a spec.
type complaints struct {
	what  string // the rule, as people call it
	spec  *model.ModelSpec
	tasks []*model.Task
	all   []string
}

func (c *complaints) add(format string, args ...any) {
	c.all = append(c.all, c.what+" "+fmt.Sprintf(format, args...))
}

// Check says what is wrong with a rule of a spec of these tasks, in sentences that begin with what.
func Check(what string, r *model.SampleRule, spec *model.ModelSpec, tasks []*model.Task) []string {
	c := &complaints{what: what, spec: spec, tasks: tasks}
	labels, inBatch := map[string]bool{}, ""
	for _, t := range tasks {
		labels[t.GetName()] = true
		if l := t.GetLoss(); l == model.Task_IN_BATCH_SOFTMAX || l == model.Task_IN_BATCH_AUC {
			inBatch = t.GetName()
		}
	}
	if n := len(r.GetWhere()); n > MaxWhere {
		c.add("has %d conditions: %d are allowed", n, MaxWhere)
	}
	for k, w := range r.GetWhere() {
		c.what = fmt.Sprintf("%s, condition %d,", what, k+1)
		c.condition(w, labels)
	}
	c.what = what
	c.action(r)
	if Reweighs(r) && inBatch != "" {
		c.add("changes what samples count, and task %q compares the samples of a batch with one another, whatever they count: keep or drop samples alone", inBatch)
	}
	return c.all
}

// action checks what a rule does.
func (c *complaints) action(r *model.SampleRule) {
	switch a := r.GetAction().(type) {
	case *model.SampleRule_Keep_:
		if len(r.GetWhere()) == 0 {
			c.add("keeps every sample: say which in where")
		}
	case *model.SampleRule_Drop_:
		rate := DropRate(a.Drop)
		if !(rate > 0 && rate <= 1) { // written so that NaN fails
			c.add("drops a share of %g: give a rate above 0, up to 1", rate)
		}
		if len(r.GetWhere()) == 0 && rate == 1 {
			c.add("drops every sample: say which in where, or give a rate below 1")
		}
		switch a.Drop.GetCorrection() {
		case model.SampleRule_NONE:
		case model.SampleRule_WEIGHT:
			if rate == 1 {
				c.add("drops all of its samples and has a correction, for which none is left: take it away, or give a rate below 1")
			}
		default:
			c.add("has the unknown correction %d: use NONE or WEIGHT", a.Drop.GetCorrection())
		}
	case *model.SampleRule_Weigh_:
		if w := a.Weigh.GetWeight(); !(w > 0 && w <= math.MaxFloat32) {
			c.add("has the weight %g: give a finite number above 0", w)
		}
	case *model.SampleRule_Negatives_:
		c.negatives(a.Negatives)
	case *model.SampleRule_Reweight_:
		c.reweight(a.Reweight)
	default:
		c.add("does nothing: give it keep, drop, weigh, negatives or reweight")
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
