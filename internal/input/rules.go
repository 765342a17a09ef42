package input

import (
	"bytes"
	"math"
	"strconv"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/samplerule"
	"github.com/monolith-go/monolith/kernels/table"
)

// Position is where a record stands in its source. Rules that go by chance draw by it, so that
// whoever reads the record again drops the same samples of it.
type Position struct {
	Partition int32
	Offset    int64
}

// rule is a sample rule of the spec, made ready.
type rule struct {
	where  []condition
	keep   bool    // drop what does not meet the conditions
	rate   float64 // share that is dropped of what does
	factor float64 // by which the rest of it counts
	key    uint64  // of its draws

	negatives *negatives // nil: it makes none
	reweight  *reweight  // nil: it asks for no actions
}

// condition is one of a rule's, about a declared field or, where that is -1, a task's label.
type condition struct {
	at, task     int
	texts        map[string]bool // of in; nil: there are none
	wholes       map[int64]bool
	numbers      map[float64]bool
	ranged       bool
	least, below float64
	starts, ends [][]byte // texts begin or end so; at most one of them, instead of values
	missing, not bool
	every        bool
}

// ready makes the rules of the spec ready, before the fields that they read are looked for.
func (d *Decoder) ready(tasks []*model.Task) {
	for _, r := range d.spec.GetSampleRules() {
		made := rule{factor: 1, key: table.Key(d.spec.GetSeed(), "sample rule "+r.GetName(), 0)}
		switch a := r.GetAction().(type) {
		case *model.SampleRule_Keep_:
			made.keep = true
		case *model.SampleRule_Drop_:
			made.rate = samplerule.DropRate(a.Drop)
			if d.options.Measure && made.rate < 1 {
				made.rate = 0
			} else if a.Drop.GetCorrection() == model.SampleRule_WEIGHT {
				made.factor = 1 / (1 - made.rate)
			}
		case *model.SampleRule_Weigh_:
			made.factor = a.Weigh.GetWeight()
		case *model.SampleRule_Negatives_:
			made.negatives = d.negativesOf(a.Negatives)
		case *model.SampleRule_Reweight_:
			made.reweight = d.reweightOf(a.Reweight, tasks)
		}
		for _, w := range r.GetWhere() {
			made.where = append(made.where, d.condition(w, tasks))
		}
		d.rules = append(d.rules, made)
	}
	d.dropped = make([]int, len(d.rules))
}

func (d *Decoder) condition(w *model.Condition, tasks []*model.Task) condition {
	c := condition{at: -1, missing: w.GetMissing(), not: w.GetNot(), every: w.GetEvery(), ranged: w.AtLeast != nil || w.Below != nil}
	if w.GetField() != "" {
		c.at = d.declare(w.GetField())
	}
	least, below := samplerule.Range(w)
	c.least, c.below = c.as(least), c.as(below)
	for i, t := range tasks {
		if t.GetName() == w.GetLabel() {
			c.task = i
		}
	}
	for _, text := range w.GetStartsWith() {
		c.starts = append(c.starts, []byte(text))
	}
	for _, text := range w.GetEndsWith() {
		c.ends = append(c.ends, []byte(text))
	}
	if len(w.GetIn()) == 0 {
		return c
	}
	c.texts, c.wholes, c.numbers = map[string]bool{}, map[int64]bool{}, map[float64]bool{}
	for _, text := range w.GetIn() {
		c.texts[text] = true
		n, err := strconv.ParseInt(text, 10, 64)
		if err == nil {
			c.wholes[n] = true
		}
		if err == nil && (n > exact || n < -exact) {
			continue // a float64 near it may be another number
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		c.numbers[c.as(f)] = true
		if math.Abs(f) <= exact && f == math.Trunc(f) {
			c.wholes[int64(f)] = true
		}
	}
	return c
}

// as is a number of the spec as what it is compared with has it: labels have 32 bits.
func (c *condition) as(f float64) float64 {
	if c.at < 0 {
		return float64(float32(f))
	}
	return f
}

// exact is the greatest float64 below which every whole number is one.
const exact = 1 << 53

// sifts says whether the sample that was found is learnt, and sets how much it counts.
func (d *Decoder) sifts() (bool, error) {
	d.factor = 1
	for i := range d.tasks {
		d.tasks[i].told = false
	}
	for i := range d.rules {
		r := &d.rules[i]
		meets, err := d.meets(r)
		if err != nil {
			return false, err
		}
		factor := r.factor
		if meets && r.reweight != nil {
			if factor, err = d.reweighs(r.reweight); err != nil {
				return false, err
			}
		}
		if r.keep && !meets || meets && (factor == 0 || d.drops(r)) {
			d.dropped[i]++
			return false, nil
		}
		if meets {
			d.factor *= factor
		}
		if meets && r.negatives != nil && d.pool != nil {
			d.drawing = append(d.drawing, i)
		}
	}
	return true, nil
}

// drops says whether a rule drops a sample that meets its conditions.
func (d *Decoder) drops(r *rule) bool {
	if r.rate == 0 || r.rate == 1 {
		return r.rate == 1
	}
	key := table.Key(table.Key(r.key, "", int64(d.from.Partition)), "", d.from.Offset)
	return float64(table.Key(key, "", int64(d.nth))>>11)*0x1p-53 < r.rate
}

func (d *Decoder) meets(r *rule) (bool, error) {
	for i := range r.where {
		c := &r.where[i]
		var holds bool
		if c.at >= 0 {
			holds = d.holds(c)
		} else {
			if err := d.task(c.task); err != nil {
				return false, err
			}
			holds = c.missing
			if d.sample.Weights[c.task] > 0 {
				holds = c.number(float64(d.sample.Labels[c.task]))
			}
		}
		if holds == c.not {
			return false, nil
		}
	}
	return true, nil
}

// holds says whether one of a field's values, or every one, is what a condition asks for.
func (d *Decoder) holds(c *condition) bool {
	it := d.values(c.at)
	for it.next() {
		if d.value(c, &it.element) != c.every {
			return !c.every
		}
	}
	if it.count == 0 {
		return c.missing
	}
	return c.every
}

func (d *Decoder) value(c *condition, e *element) bool {
	written := e.kind == quoted || e.kind == blob || e.kind == text
	switch {
	case e.kind == null:
		return false
	case c.starts != nil || c.ends != nil:
		return (e.kind == quoted || e.kind == blob) && c.affixed(d.written(e))
	case c.texts == nil && !c.ranged:
		return true
	case written && !numeral(d.written(e)): // to find that out by parsing costs an error
		return c.texts[string(d.written(e))]
	case c.texts != nil && e.kind == fid:
		return c.wholes[int64(e.bits)]
	case c.texts != nil:
		if n, ok := d.whole(e); ok {
			return c.wholes[n]
		}
	}
	if f, ok := d.finite(e); ok {
		return c.number(f)
	}
	return written && c.texts[string(d.written(e))]
}

// affixed says whether text begins or ends as the condition says.
func (c *condition) affixed(text []byte) bool {
	for _, s := range c.starts {
		if bytes.HasPrefix(text, s) {
			return true
		}
	}
	for _, s := range c.ends {
		if bytes.HasSuffix(text, s) {
			return true
		}
	}
	return false
}

// numeral says whether text may be a finite number.
func numeral(text []byte) bool {
	return len(text) > 0 && (text[0] >= '0' && text[0] <= '9' || text[0] == '-' || text[0] == '+' || text[0] == '.')
}

// number says whether it is in the condition's list, or its range.
func (c *condition) number(f float64) bool {
	if c.texts != nil {
		return c.numbers[f]
	}
	return f >= c.least && f < c.below
}

// weigh takes what the rules said into the sample.
func (d *Decoder) weigh() {
	if d.factor == 1 {
		return
	}
	for i, w := range d.sample.Weights {
		d.sample.Weights[i] = float32(min(float64(w)*d.factor, math.MaxFloat32))
	}
}

// Dropped is how many samples of the last record each rule of the spec has dropped; it is the
// decoder's, until the next record.
func (d *Decoder) Dropped() []int { return d.dropped }
