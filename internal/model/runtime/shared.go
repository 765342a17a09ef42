package runtime

import (
	"math"
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// piece is so many floats of a tensor, which follow from a feature's rows.
type piece struct{ feature, floats int }

// tensor is where the floats of one of the model's tensors come from, in order.
type tensor struct {
	pieces []piece
	mixed  bool // they are not one after another: all or nothing is the same in all samples
}

// trace notes where tensors come from, and which features are added to others.
func (e *Engine) trace(m *modelspec.Model, index map[string]int) {
	e.added = make([]bool, len(e.features))
	for _, o := range m.Outputs {
		var all tensor
		for i, s := range o.Slices {
			f := index[s.Feature]
			p := piece{f, s.To - s.From}
			if e.features[f].sequence {
				p.floats *= e.features[f].length
				all.mixed = all.mixed || o.Type == model.Output_CONCAT
			}
			switch o.Type {
			case model.Output_NONE:
				e.tensors = append(e.tensors, tensor{pieces: []piece{p}})
				continue
			case model.Output_ADDN:
				e.added[f], all.mixed = e.added[f] || i > 0, true
			}
			all.pieces = append(all.pieces, p)
		}
		if o.Type != model.Output_NONE {
			e.tensors = append(e.tensors, all)
		}
	}
}

// same says whether all samples have the same ids.
func (c *column) same() bool {
	n := c.samples()
	if n < 2 {
		return false
	}
	first := c.of(0)
	for i := 1; i < n; i++ {
		if !slices.Equal(c.of(i), first) {
			return false
		}
	}
	return true
}

// share finds the features of which all samples have the same ids. One of which several are added to other
// features' stays apart: a sum of sums may round otherwise.
func (b *Batch) share() {
	for f := range b.ids {
		c := b.rowIDs(f)
		b.shared[f] = c.same() && (!b.e.added[f] || len(c.of(0)) == 1)
	}
}

// Shares says whether all samples have the same ids of a feature, so that it is worth while to score them by
// themselves.
func (b *Batch) Shares() bool {
	for f := range b.ids {
		if b.e.features[f].cross == nil && b.ids[f].same() {
			return true
		}
	}
	return false
}

// common is how many leading floats of each of the score's inputs are the same in all samples.
func (e *Engine) common(b *Batch) []int {
	b.same = b.same[:0]
	for _, t := range e.tensors {
		sum, all := 0, true
		for _, p := range t.pieces {
			if all = b.shared[p.feature]; !all {
				break
			}
			sum += p.floats
		}
		if t.mixed && !all {
			sum = 0
		}
		b.same = append(b.same, sum)
	}
	for _, f := range e.sequences {
		n := 0
		if b.shared[f] {
			n = 1
		}
		b.same = append(b.same, n)
	}
	for i, f := range e.floats {
		b.same = append(b.same, leadingSame(b.floats[i], f.dim))
	}
	return b.same
}

// leadingSame is how many leading floats of rows of dim have the same bits in all.
func leadingSame(rows []float32, dim int) int {
	n := dim
	for at := dim; at < len(rows); at += dim {
		for i := range n {
			if math.Float32bits(rows[at+i]) != math.Float32bits(rows[i]) {
				n = i
				break
			}
		}
	}
	return n
}
