package samplerule

import (
	"math"

	"github.com/monolith-go/monolith/events/model"
)

// Bounds of negatives.
const (
	MaxNegatives   = 64      // of a sample, by one rule
	MaxPoolRecords = 1 << 20 // offsets that a pool reaches back
	MaxPoolItems   = 1 << 20
)

// Negatives are what a rule says of them, with what it leaves out.
type Negatives struct {
	Count, Items, Start int
	Records             int64
	Weight              float64
}

// NegativesOf is n with its defaults.
func NegativesOf(n *model.SampleRule_Negatives) Negatives {
	made := Negatives{Count: int(n.GetCount()), Items: 100_000, Start: 500, Records: 10_000, Weight: 1}
	if n.Items != nil {
		made.Items = int(n.GetItems())
	}
	if n.Start != nil {
		made.Start = int(n.GetStart())
	}
	if n.Records != nil {
		made.Records = int64(min(n.GetRecords(), math.MaxInt64))
	}
	if n.Weight != nil {
		made.Weight = n.GetWeight()
	}
	return made
}

// Samples is how many samples a record's becomes at most, with its negatives.
func Samples(spec *model.ModelSpec) int {
	n := 1
	for _, r := range spec.GetSampleRules() {
		n += int(r.GetNegatives().GetCount())
	}
	return n
}

// PoolRecords is how many offsets before a sample its negatives may come from; 0: the model has none.
func PoolRecords(spec *model.ModelSpec) (n int64) {
	for _, r := range spec.GetSampleRules() {
		if r.GetNegatives() != nil {
			n = max(n, NegativesOf(r.GetNegatives()).Records)
		}
	}
	return n
}

// negatives checks what a rule says of them.
func (c *complaints) negatives(n *model.SampleRule_Negatives) {
	made := NegativesOf(n)
	between := func(name string, n, least, most int64) {
		if n < least || n > most {
			c.add("has negatives with %s %d: give %d to %d", name, n, least, most)
		}
	}
	between("count", int64(n.GetCount()), 1, MaxNegatives)
	between("records", made.Records, 1, MaxPoolRecords)
	between("items", int64(made.Items), 1, MaxPoolItems)
	between("start", int64(made.Start), 0, int64(max(made.Items-1, 0)))
	if w := made.Weight; !(w > 0 && w <= math.MaxFloat32) {
		c.add("has negatives of the weight %g: give a finite number above 0", w)
	}
	c.item(n.GetItem())
	for _, t := range c.tasks {
		if t.GetLoss() == model.Task_IN_BATCH_SOFTMAX {
			c.add("makes negatives, and task %q takes the other samples of a batch for its own: take the rule away, or learn by CROSS_ENTROPY", t.GetName())
		}
	}
}

// item checks what an item consists of.
func (c *complaints) item(words []string) {
	spec := c.spec
	if len(words) == 0 {
		c.add("has negatives without an item: name its features, first the one by whose id it is known")
	}
	seen := map[string]bool{}
	for i, word := range words {
		is := ""
		for _, f := range spec.GetFeatures() {
			if f.GetName() == word {
				if is = "feature"; len(f.GetCross()) > 0 {
					c.add("has negatives of the feature %q, which is crossed: name those that it crosses", word)
				}
			}
		}
		for _, f := range spec.GetFloats() {
			if f.GetName() == word {
				is = "float"
			}
		}
		switch {
		case seen[word]:
			c.add("has negatives of %q twice: name it once", word)
		case is == "":
			c.add("has negatives of %q, which is no feature or float: name those of an item", word)
		case i == 0 && is == "float":
			c.add("has negatives of items that are known by %q, which is a float: put the feature with their id first", word)
		}
		seen[word] = true
	}
	if len(seen) > 0 && len(seen) == len(spec.GetFeatures())+len(spec.GetFloats()) {
		c.add("has negatives that keep nothing of their sample: leave out of the item what is of the user")
	}
}
