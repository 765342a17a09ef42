package input

import (
	"math"
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input/itempool"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/model/samplerule"
	"github.com/monolith-go/monolith/kernels/table"
)

// negatives is what a rule says of them: which features and floats of the spec are an item's.
type negatives struct {
	samplerule.Negatives
	features, floats []int
}

// negativesOf makes a rule's ready.
func (d *Decoder) negativesOf(n *model.SampleRule_Negatives) *negatives {
	made := &negatives{Negatives: samplerule.NegativesOf(n)}
	for _, word := range n.GetItem() {
		if i := slices.IndexFunc(d.spec.GetFeatures(), func(f *model.Feature) bool { return f.GetName() == word }); i >= 0 {
			made.features = append(made.features, i)
		}
		if i := slices.IndexFunc(d.spec.GetFloats(), func(f *model.Float) bool { return f.GetName() == word }); i >= 0 {
			made.floats = append(made.floats, i)
		}
	}
	return made
}

// Draw has negatives drawn from a pool: of the samples' partition, and filled by it. A decoder without a pool
// makes none.
func (d *Decoder) Draw(from *itempool.Pool) { d.pool = from }

// declared is what a rule that makes negatives says of them.
func (d *Decoder) declared(rule int) samplerule.Negatives { return d.rules[rule].negatives.Negatives }

// Remember puts a record's items into the pool, unless it has seen the record, and draws none: there they are whether
// it was learnt or not. Alone is a batch for nothing else; what is in it is lost.
func (d *Decoder) Remember(alone *runtime.Batch, record []byte, from Position) {
	if d.pool == nil || d.pool.Saw(from.Offset) {
		return
	}
	d.noting = true
	err := d.recordInto(alone, record, from)
	d.noting = false
	if err != nil {
		d.met = d.met[:0]
	}
	d.pool.Put(from.Offset, d.met, d.declared)
}

// negate adds, for each rule that the sample that was made meets, copies of it with other items.
func (d *Decoder) negate(b *runtime.Batch) error {
	for _, i := range d.drawing {
		r := &d.rules[i]
		n := r.negatives
		ids := d.sample.IDs[n.features[0]]
		if len(ids) == 0 {
			continue // it has no item
		}
		key := table.Key(table.Key(r.key, "", int64(d.from.Partition)), "", d.from.Offset)
		for k := range n.Count {
			other, ok := d.pool.Draw(i, d.from.Offset, ids[0], table.Key(key, "", int64(d.nth)*samplerule.MaxNegatives+int64(k)))
			if !ok {
				break
			}
			if err := d.copy(b, n, &other); err != nil {
				return err
			}
		}
	}
	return nil
}

// note notes the sample's item for each rule that it meets.
func (d *Decoder) note() {
	for _, i := range d.drawing {
		if n := d.rules[i].negatives; len(d.sample.IDs[n.features[0]]) > 0 {
			d.met = append(d.met, itempool.Found{Rule: i, Item: d.itemOf(n)})
		}
	}
}

// copy adds the sample with another item, which it is not known to have chosen.
func (d *Decoder) copy(b *runtime.Batch, n *negatives, other *itempool.Item) error {
	s := &d.negative
	s.IDs, s.Floats = append(s.IDs[:0], d.sample.IDs...), append(s.Floats[:0], d.sample.Floats...)
	for i, f := range n.features {
		s.IDs[f] = other.IDs[i]
	}
	for i, f := range n.floats {
		s.Floats[f] = other.Floats[i]
	}
	s.Labels, s.Weights = append(s.Labels[:0], d.sample.Labels...), append(s.Weights[:0], d.sample.Weights...)
	clear(s.Labels)
	for i, w := range s.Weights {
		s.Weights[i] = float32(min(float64(w)*n.Weight, math.MaxFloat32))
	}
	if err := b.Add(*s); err != nil {
		return err
	}
	if d.options.Lines {
		d.lines = append(d.lines, d.readLine())
	}
	return nil
}

// itemOf is that of the sample that was made, which it outlives.
func (d *Decoder) itemOf(n *negatives) itempool.Item {
	made := itempool.Item{Key: d.sample.IDs[n.features[0]][0]}
	for _, f := range n.features {
		made.IDs = append(made.IDs, slices.Clone(d.sample.IDs[f]))
	}
	for _, f := range n.floats {
		made.Floats = append(made.Floats, slices.Clone(d.sample.Floats[f]))
	}
	return made
}
