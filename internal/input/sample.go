package input

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// made makes the sample of the fields that were found.
func (d *Decoder) made() error {
	d.ids, d.numbers = kept(d.ids, maxValues), kept(d.numbers, maxValues)
	if d.ones = d.direct && d.singles(); d.ones {
		return d.others()
	}
	for f := range d.features {
		c := &d.features[f]
		if c.at < 0 {
			continue
		}
		if id, ok := d.only(c); ok {
			d.ids = append(d.ids, modelspec.FID(c.slot, id))
			d.sample.IDs[f] = d.ids[len(d.ids)-1 : len(d.ids) : len(d.ids)]
			continue
		}
		ids, err := d.feature(d.spec.Features[f], c.at)
		if err != nil {
			return err
		}
		d.sample.IDs[f] = ids
	}
	return d.others()
}

// singles reads the ids of a sample that has one of each feature: ok is false where it may have anything else.
func (d *Decoder) singles() (ok bool) {
	for f := range d.features {
		c := &d.features[f]
		if c.at < 0 {
			d.ids = append(d.ids, 0) // crossed: the batch makes it
			continue
		}
		id, ok := d.only(c)
		if !ok {
			d.ids = d.ids[:0]
			return false
		}
		d.ids = append(d.ids, modelspec.FID(c.slot, id))
	}
	return true
}

// others reads what a sample has beside its ids.
func (d *Decoder) others() error {
	for i, at := range d.floats {
		numbers, err := d.float(d.spec.Floats[i], at)
		if err != nil {
			return err
		}
		d.sample.Floats[i] = numbers
	}
	for i := range d.tasks {
		if err := d.task(i); err != nil {
			return err
		}
	}
	if d.time >= 0 && d.found[d.time].kind != absent {
		return d.seconds(d.time)
	}
	return nil
}

// only reads what nearly every feature has, one id that is a number; ok is false where it has
// anything else, of which feature knows more.
func (d *Decoder) only(c *column) (id int64, ok bool) {
	v := &d.found[c.at]
	switch v.kind {
	case text:
		if id = v.number; id > 0 {
			break
		}
		if id, ok = digits(v.raw); !ok {
			return 0, false
		}
	case integer, fid:
		if v.count != 1 {
			return 0, false
		}
		id = int64(d.nthOf(v, 0).bits)
	default:
		return 0, false
	}
	return c.take(v.kind, id)
}

// take reads a number as an id within the column's slot; ok is false where it is none, or feature knows more.
func (c *column) take(k kind, n int64) (id int64, ok bool) {
	switch c.ids {
	case model.Feature_FID:
		return n & modelspec.MaxID, n >= 0 && modelspec.SlotOf(n) == c.slot
	case model.Feature_NUMBER:
		return n, k != fid && n >= 0 && n <= modelspec.MaxID
	}
	return 0, false
}

// feature reads the ids of a feature, with its slot.
func (d *Decoder) feature(f *model.Feature, at int) ([]int64, error) {
	begin := len(d.ids)
	it := d.values(at)
	for it.next() {
		id, err := d.id(f, &it)
		if err != nil {
			return nil, err
		}
		d.ids = append(d.ids, modelspec.FID(f.GetSlot(), id))
	}
	if it.count == 0 {
		switch f.GetMissing() {
		case model.Feature_REJECT:
			return nil, d.missing(at)
		case model.Feature_DEFAULT:
			for _, id := range f.GetDefaultIds() {
				d.ids = append(d.ids, modelspec.FID(f.GetSlot(), int64(id)))
			}
		}
	}
	return d.ids[begin:len(d.ids):len(d.ids)], nil
}

// id reads one value as an id within the feature's slot.
func (d *Decoder) id(f *model.Feature, it *values) (int64, error) {
	if f.GetIds() == model.Feature_HASH {
		text, ok := d.bytes(&it.element)
		if !ok {
			return 0, fmt.Errorf("%s is %s, which has no bytes to hash: write a string, or a whole number", it.what(), it.shown())
		}
		return modelspec.HashID(text), nil
	}
	id, ok := d.whole(&it.element)
	if it.kind == fid {
		if id = int64(it.bits); f.GetIds() != model.Feature_FID {
			return 0, fmt.Errorf("%s is %s, and feature %q reads numbers within its slot: declare ids: FID", it.what(), it.shown(), f.GetName())
		}
	} else if !ok {
		return 0, fmt.Errorf("%s is %s, not a whole number", it.what(), it.shown())
	}
	if f.GetIds() == model.Feature_FID {
		if id < 0 || modelspec.SlotOf(id) != f.GetSlot() {
			return 0, fmt.Errorf("%s is %d, a feature id of slot %d, and feature %q has slot %d", it.what(), id, modelspec.SlotOf(id), f.GetName(), f.GetSlot())
		}
		return id & modelspec.MaxID, nil
	}
	taken, ok := modelspec.VocabularyOf(f).Take(id)
	if !ok {
		return 0, fmt.Errorf("%s is %d, outside 0 to 2^48-1", it.what(), id)
	}
	return taken, nil
}

// float reads the numbers of a Float.
func (d *Decoder) float(f *model.Float, at int) ([]float32, error) {
	begin, dim := len(d.numbers), int(max(f.GetDim(), 1))
	it := d.values(at)
	for it.next() {
		v, ok := d.finite(&it.element)
		if !ok || math.IsInf(float64(float32(v)), 0) {
			return nil, fmt.Errorf("%s is %s, not a number", it.what(), it.shown())
		}
		d.numbers = append(d.numbers, float32(v))
	}
	switch {
	case it.count == 0 && f.GetMissing() == model.Feature_REJECT:
		return nil, d.missing(at)
	case it.count == 0:
		for range dim {
			d.numbers = append(d.numbers, f.GetDefault())
		}
	case it.count != dim:
		return nil, fmt.Errorf("field %q has %d numbers, %d are read", d.names[at], it.count, dim)
	}
	return d.numbers[begin:len(d.numbers):len(d.numbers)], nil
}

// task reads what a task learns from: weights that the record does not have are 1, and where they
// are 0 it needs no label.
func (d *Decoder) task(i int) error {
	t, weight, label := &d.tasks[i], 1.0, d.unlabelled()
	for _, at := range [...]int{t.weight, t.mask} {
		if at < 0 || d.none(at) {
			continue
		}
		v, err := d.number(at)
		if err != nil {
			return err
		}
		if v < 0 || v > math.MaxFloat32 {
			return fmt.Errorf("field %q is %v: a weight is a finite number of 0 or more", d.names[at], v)
		}
		weight *= v
	}
	d.sample.Weights[i] = float32(min(weight, math.MaxFloat32))
	if t.label >= 0 && weight == 0 && d.none(t.label) {
		label = 0
	} else if t.label >= 0 {
		v, err := d.number(t.label)
		if err != nil {
			return err
		}
		if label, err = d.labelOf(i, v); err != nil {
			return err
		}
	}
	if t.told {
		label = t.says
	}
	d.sample.Labels[i] = label
	return nil
}

// unlabelled is what a task learns that reads no label.
func (d *Decoder) unlabelled() float32 {
	if d.options.Serving {
		return 0
	}
	return 1
}

// labelOf is what a task learns of a number.
func (d *Decoder) labelOf(i int, v float64) (float32, error) {
	t, o := &d.tasks[i], &d.options
	if i == 0 && o.Min != o.Max && (v < o.Min || v > o.Max) {
		return 0, fmt.Errorf("field %q is %v, outside %v to %v", d.names[t.label], v, o.Min, o.Max)
	}
	label := modelspec.Labelled(t.of, v)
	if math.IsInf(float64(label), 0) {
		return 0, fmt.Errorf("field %q is %v, beyond what a label can be", d.names[t.label], v)
	}
	return label, nil
}
