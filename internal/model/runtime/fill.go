package runtime

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// Bounds of a batch, beside the number of samples that its engine is made for.
const (
	// MaxIDs is the most ids that one sample may have of one feature.
	MaxIDs = 16384
	// MaxBatchIDs is the most ids of a batch, repeated ones counted. An engine for more samples
	// than have one id of each feature within it takes these.
	MaxBatchIDs = 1 << 22
	// MaxBatchRows is the most bytes of all rows that a batch reads.
	MaxBatchRows = 1 << 30
)

// column is the ids of a feature, sample after sample. As long as each has one, ends says
// nothing.
type column struct {
	ids    []int64
	ends   []int32 // by sample
	ragged bool
}

func (c *column) samples() int {
	if c.ragged {
		return len(c.ends)
	}
	return len(c.ids)
}

func (c *column) of(sample int) []int64 {
	if !c.ragged {
		return c.ids[sample : sample+1]
	}
	begin := int32(0)
	if sample > 0 {
		begin = c.ends[sample-1]
	}
	return c.ids[begin:c.ends[sample]]
}

// add appends a sample.
func (c *column) add(ids []int64) {
	if len(ids) == 1 && !c.ragged {
		c.ids = append(c.ids, ids[0])
		return
	}
	c.ids = append(c.ids, ids...)
	c.end(len(ids))
}

// end makes the last n ids another sample.
func (c *column) end(n int) {
	if !c.ragged {
		if n == 1 {
			return
		}
		c.ragged, c.ends = true, c.ends[:0]
		for i := range len(c.ids) - n {
			c.ends = append(c.ends, int32(i+1))
		}
	}
	c.ends = append(c.ends, int32(len(c.ids)))
}

func (c *column) truncate(n int) {
	if n = min(n, c.samples()); c.ragged && n > 0 {
		c.ids, c.ends = c.ids[:c.ends[n-1]], c.ends[:n]
		return
	}
	c.ids, c.ragged = c.ids[:n], false
}

// Reset empties the batch.
func (b *Batch) Reset() { b.Truncate(0) }

// Truncate keeps the first n samples: with an earlier Len, it takes back what was added since.
func (b *Batch) Truncate(n int) {
	b.sealed = false
	b.singles = min(b.singles, n)
	for f := range b.ids {
		b.ids[f].truncate(n)
	}
	for i := range b.floats {
		b.floats[i] = b.floats[i][:min(n*b.e.floats[i].dim, len(b.floats[i]))]
	}
	for i := range b.labels {
		b.labels[i] = b.labels[i][:min(n, len(b.labels[i]))]
		b.weights[i] = b.weights[i][:min(n, len(b.weights[i]))]
	}
}

// Add appends a sample; an error leaves the batch as it was.
func (b *Batch) Add(s Sample) error {
	e := b.e
	switch {
	case len(s.IDs) != len(e.features):
		return fmt.Errorf("a sample with ids of %d features: the model has %d", len(s.IDs), len(e.features))
	case len(s.Floats) != len(e.floats):
		return fmt.Errorf("a sample with %d floats: the model has %d", len(s.Floats), len(e.floats))
	case len(s.Labels) != len(e.tasks):
		return fmt.Errorf("a sample with %d labels: the model has %d tasks", len(s.Labels), len(e.tasks))
	case s.Weights != nil && len(s.Weights) != len(e.tasks):
		return fmt.Errorf("a sample with %d weights: the model has %d tasks", len(s.Weights), len(e.tasks))
	case b.Len() == e.samples:
		return fmt.Errorf("%w: it has %d samples", ErrFull, e.samples)
	}
	total := 0
	for f, ids := range s.IDs {
		if at := &e.features[f]; len(ids) == 1 && at.cross == nil && modelspec.SlotOf(ids[0]) == at.slot {
			total += at.rows.Rows() // which a sequence has room for
			continue
		}
		n, err := e.takes(f, ids)
		if err != nil {
			return err
		}
		total += n * e.features[f].rows.Rows()
	}
	for _, f := range e.crossed {
		n, err := e.combinations(f, func(of int) int { return e.most(of, len(s.IDs[of])) })
		if err != nil {
			return err
		}
		total += e.most(f, n) * e.features[f].rows.Rows()
	}
	for i, values := range s.Floats {
		if len(values) != e.floats[i].dim {
			return fmt.Errorf("float %q has %d numbers, it is declared with %d", e.floats[i].name, len(values), e.floats[i].dim)
		}
	}
	if err := b.room(total); err != nil {
		return err
	}
	for f, ids := range s.IDs {
		if e.features[f].cross == nil {
			b.ids[f].add(ids[:e.most(f, len(ids))])
		}
	}
	for _, f := range e.crossed {
		b.cross(f, b.Len()-1)
	}
	b.others(s.Floats, s.Labels, s.Weights)
	return nil
}

// AddSingle is Add of a sample with one id of each feature, ids[f] of feature f; what stands there for a crossed one is
// not looked at.
func (b *Batch) AddSingle(ids []int64, floats [][]float32, labels, weights []float32) error {
	if !b.takesSingle(ids, floats, labels, weights) {
		return b.addOnes(ids, floats, labels, weights)
	}
	for f := range b.ids {
		c := &b.ids[f]
		if c.ids = append(c.ids, ids[f]); c.ragged {
			c.end(1) // of samples that were taken back
		}
	}
	b.others(floats, labels, weights)
	b.singles = b.Len()
	return nil
}

// takesSingle says whether such a sample may follow those of the batch, all of which are such, without a closer look.
func (b *Batch) takesSingle(ids []int64, floats [][]float32, labels, weights []float32) bool {
	e, n := b.e, b.Len()
	if len(ids) != len(e.features) || len(floats) != len(e.floats) || len(labels) != len(e.tasks) || weights != nil && len(weights) != len(labels) ||
		len(e.crossed) > 0 || b.singles < n || n == e.samples || (n+1)*e.reads > e.batchIDs {
		return false
	}
	for f, slot := range e.slots {
		if modelspec.SlotOf(ids[f]) != slot {
			return false
		}
	}
	for i, values := range floats {
		if len(values) != e.floats[i].dim {
			return false
		}
	}
	return true
}

// addOnes is AddSingle where the batch has other samples, or crossed features, and where Add has a reason to refuse.
func (b *Batch) addOnes(ids []int64, floats [][]float32, labels, weights []float32) error {
	b.ones = b.ones[:0]
	for f := range ids {
		var one []int64
		if f >= len(b.e.features) || b.e.features[f].cross == nil {
			one = ids[f : f+1 : f+1]
		}
		b.ones = append(b.ones, one)
	}
	return b.Add(Sample{IDs: b.ones, Floats: floats, Labels: labels, Weights: weights})
}

// others appends what a sample has beside its ids.
func (b *Batch) others(floats [][]float32, labels, weights []float32) {
	for i, values := range floats {
		b.floats[i] = append(b.floats[i], values...)
	}
	for i, label := range labels {
		b.labels[i] = append(b.labels[i], label)
		if b.e.tasks[i].Weighted() {
			weight := float32(1)
			if weights != nil {
				weight = weights[i]
			}
			b.weights[i] = append(b.weights[i], weight)
		}
	}
	b.sealed = false
}

// Column appends, after Reset, the ids of one feature for all samples, which have no labels:
// sample i has ids[splits[i]:splits[i+1]], and one each where splits is nil. Seal refuses
// features of different lengths, and makes what crossed ones have.
func (b *Batch) Column(f int, ids []int64, splits []int32) error {
	e, n := b.e, len(ids)
	if e.features[f].cross != nil {
		return fmt.Errorf("feature %q is crossed: give the features that it crosses", e.features[f].name)
	}
	if splits != nil {
		if n = len(splits) - 1; n < 0 || splits[0] != 0 || int(splits[n]) != len(ids) {
			return fmt.Errorf("feature %q: the row splits must begin with 0 and end with %d, its ids", e.features[f].name, len(ids))
		}
		for i := range n {
			if splits[i] > splits[i+1] {
				return fmt.Errorf("feature %q: row split %d falls from %d to %d", e.features[f].name, i, splits[i], splits[i+1])
			}
		}
	}
	if b.ids[f].samples()+n > e.samples {
		return fmt.Errorf("%w: it has %d samples at most", ErrFull, e.samples)
	}
	if err := b.room(len(ids) * e.features[f].rows.Rows()); err != nil {
		return err
	}
	if splits == nil {
		for i, id := range ids {
			if err := e.owns(f, id); err != nil {
				return fmt.Errorf("sample %d: %w", i, err)
			}
		}
		if !b.ids[f].ragged { // a sequence has room for one
			b.ids[f].ids, b.sealed = append(b.ids[f].ids, ids...), false
			return nil
		}
	}
	for i := range n {
		begin, end := i, i+1
		if splits != nil {
			begin, end = int(splits[i]), int(splits[i+1])
		}
		sample := ids[begin:end]
		if _, err := e.takes(f, sample); err != nil {
			b.ids[f].truncate(b.ids[f].samples() - i)
			return fmt.Errorf("sample %d: %w", i, err)
		}
		b.ids[f].add(sample[:e.most(f, len(sample))])
	}
	b.sealed = false
	return nil
}

// FloatColumn appends, after Reset, the numbers of one Float of the spec for all samples, as
// many for each as it says.
func (b *Batch) FloatColumn(f int, values []float32) error {
	dim := b.e.floats[f].dim
	if len(values)%dim != 0 {
		return fmt.Errorf("float %q has %d numbers, which is no multiple of the %d of a sample", b.e.floats[f].name, len(values), dim)
	}
	if len(b.floats[f])+len(values) > b.e.samples*dim {
		return fmt.Errorf("%w: it has %d samples at most", ErrFull, b.e.samples)
	}
	b.floats[f], b.sealed = append(b.floats[f], values...), false
	return nil
}

// Append adds the samples of another batch of the same engine, without their labels. Seal makes what
// crossed features have. An error leaves the batch as it was.
func (b *Batch) Append(o *Batch) error {
	e, n := b.e, o.Len()
	if o.e != e {
		return errors.New("the batch was made by another engine")
	}
	if b.Len()+n > e.samples {
		return fmt.Errorf("%w: it has %d samples at most", ErrFull, e.samples)
	}
	total := 0
	for f := range o.ids {
		total += len(o.ids[f].ids) * e.features[f].rows.Rows()
	}
	if err := b.room(total); err != nil {
		return err
	}
	for f := range o.ids {
		for i := range n {
			if e.features[f].cross == nil {
				b.ids[f].add(o.ids[f].of(i))
			}
		}
	}
	for i := range o.floats {
		b.floats[i] = append(b.floats[i], o.floats[i]...)
	}
	b.sealed = false
	return nil
}

// room refuses so many more ids than a batch may have.
func (b *Batch) room(more int) error {
	for f := range b.ids {
		more += len(b.ids[f].ids) * b.e.features[f].rows.Rows()
	}
	if more > b.e.batchIDs {
		return fmt.Errorf("%w: it would have %d ids, %d are allowed", ErrFull, more, b.e.batchIDs)
	}
	return nil
}

// most is how many of a sample's n ids of a feature are read.
func (e *Engine) most(f, n int) int {
	if e.features[f].sequence {
		return min(n, e.features[f].length)
	}
	return n
}

// takes checks a sample's ids of a feature, and says how many of them are read.
func (e *Engine) takes(f int, ids []int64) (int, error) {
	switch {
	case e.features[f].cross != nil && len(ids) > 0:
		return 0, fmt.Errorf("feature %q is crossed and has %d ids: give none, they follow from the features that it crosses", e.features[f].name, len(ids))
	case len(ids) > MaxIDs:
		return 0, fmt.Errorf("feature %q has %d ids in one sample, %d are allowed", e.features[f].name, len(ids), MaxIDs)
	}
	for _, id := range ids {
		if err := e.owns(f, id); err != nil {
			return 0, err
		}
	}
	return e.most(f, len(ids)), nil
}

// owns refuses an id of another slot than the feature's.
func (e *Engine) owns(f int, id int64) error {
	if slot := modelspec.SlotOf(id); slot != e.features[f].slot {
		return fmt.Errorf("feature %q: id %#x is of slot %d, the feature's is %d", e.features[f].name, id, slot, e.features[f].slot)
	}
	return nil
}

// complete makes what follows from the columns, and checks that each has every sample.
func (b *Batch) complete() error {
	e, n := b.e, b.Len()
	for f := range b.ids {
		if got := b.ids[f].samples(); got != n && e.features[f].cross == nil {
			return fmt.Errorf("feature %q has ids of %d samples, feature %q of %d: give each one for each sample", e.features[f].name, got, e.features[e.first].name, n)
		}
	}
	for i, f := range e.floats {
		if len(b.floats[i]) != n*f.dim {
			return fmt.Errorf("float %q has %d numbers for %d samples of %d: give each sample's", f.name, len(b.floats[i]), n, f.dim)
		}
	}
	for _, f := range e.crossed {
		for sample := b.ids[f].samples(); sample < n; sample++ {
			more, err := e.combinations(f, func(of int) int { return len(b.ids[of].of(sample)) })
			if err == nil {
				err = b.room(e.most(f, more) * e.features[f].rows.Rows())
			}
			if err != nil {
				return fmt.Errorf("sample %d: %w", sample, err)
			}
			b.cross(f, sample)
		}
	}
	b.bound()
	for i, f := range e.sequences {
		c := &b.ids[f]
		b.lengths[i] = sized(b.lengths[i], n)
		for sample := range n {
			b.lengths[i][sample] = float32(len(c.of(sample)))
		}
	}
	return nil
}
