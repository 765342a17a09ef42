package samplerule

import (
	"math"
	"slices"

	"github.com/monolith-go/monolith/events/model"
)

// condition checks one of a rule.
func (c *complaints) condition(w *model.Condition, labels map[string]bool) {
	switch {
	case (w.GetField() == "") == (w.GetLabel() == ""):
		c.add("must name a field of the record, or a task as its label, and not both")
	case w.GetLabel() != "" && !labels[w.GetLabel()]:
		c.add("is about the label of %q, which is no task: name one", w.GetLabel())
	}
	if n := max(len(w.GetIn()), len(w.GetStartsWith()), len(w.GetEndsWith())); n > MaxIn {
		c.add("lists %d values: %d are allowed", n, MaxIn)
	}
	c.affixes(w)
	if w.AtLeast == nil && w.Below == nil {
		return
	}
	if len(w.GetIn()) > 0 {
		c.add("has both in and a range: make two conditions of it")
	}
	least, below := Range(w)
	if math.IsNaN(least) || math.IsNaN(below) || least >= below {
		c.add("has at_least %g and below %g, between which nothing lies: give two numbers, the lower one first", least, below)
	}
}

// affixes checks what a condition says of texts and of lists, which labels are not.
func (c *complaints) affixes(w *model.Condition) {
	texts := len(w.GetStartsWith()) > 0 || len(w.GetEndsWith()) > 0
	if w.GetLabel() != "" && (texts || w.GetEvery()) {
		c.add("is about a label, which is one number: starts_with, ends_with and every are about fields")
	}
	if slices.Contains(w.GetStartsWith(), "") || slices.Contains(w.GetEndsWith(), "") {
		c.add("has an empty text in starts_with or ends_with, as every text begins and ends: leave it out")
	}
	if texts && (len(w.GetIn()) > 0 || w.AtLeast != nil || w.Below != nil) {
		c.add("has both starts_with or ends_with and values: make two conditions of it")
	}
	if len(w.GetStartsWith()) > 0 && len(w.GetEndsWith()) > 0 {
		c.add("has both starts_with and ends_with: make two conditions of it")
	}
}
