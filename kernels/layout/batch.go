package layout

import (
	"fmt"
	"slices"
)

// Batch is the sparse half of a batch: for each feature of a plan its rows of ids, in
// version 2. It is filled by one of the Read methods, or by Reset or ResetColumns and
// then Row, and used again without allocating. One goroutine at a time.
type Batch struct {
	plan *Plan
	size int
	fids []uint64
	rows []span // rows of the features that have their own, in order of arrival
	cols []column

	raw    []uint64 // ids of one Instance, before they are grouped
	groups slotGroups
}

// span is one row: fids[at : at+n].
type span struct{ at, n uint32 }

// column says where a feature's rows are.
type column struct {
	first  int // in Batch.rows; -1: the feature is absent, one shared empty row
	n      int // rows: the batch size, or 1 if shared
	shared bool
}

// NewBatch returns an empty batch for p's features.
func (p *Plan) NewBatch() *Batch {
	b := &Batch{plan: p, cols: make([]column, len(p.features))}
	b.ResetColumns(0)
	return b
}

// Plan is the plan that made b.
func (b *Batch) Plan() *Plan { return b.plan }

// Size is the number of samples.
func (b *Batch) Size() int { return b.size }

// Reset empties the batch for size samples, each with a row of every feature, which
// stays empty until set: the form of Example and Instance.
func (b *Batch) Reset(size int) error {
	if err := b.ResetColumns(size); err != nil {
		return err
	}
	rows := size * len(b.cols)
	if rows > b.plan.limits.Rows {
		return fmt.Errorf("layout: %d samples of %d features: more than the %d rows that Limits.Rows allows", size, len(b.cols), b.plan.limits.Rows)
	}
	b.rows = grow(b.rows, rows)
	clear(b.rows)
	for f := range b.cols {
		b.cols[f] = column{first: f * size, n: size}
	}
	return nil
}

// ResetColumns empties the batch for size samples without any feature: the form of
// ExampleBatch, in which a feature has one row for each sample, one for all, or none.
func (b *Batch) ResetColumns(size int) error {
	b.fids, b.rows, b.size = b.fids[:0], b.rows[:0], 0
	for f := range b.cols {
		b.cols[f] = column{first: -1, n: 1, shared: true}
	}
	if size < 0 || size > b.plan.limits.Batch {
		return fmt.Errorf("layout: batch size %d must be between 0 and the %d that Limits.Batch allows", size, b.plan.limits.Batch)
	}
	b.size = size
	return nil
}

// Column gives a feature its rows after ResetColumns: one, shared by all samples, or one
// for each of rows samples, which must be the batch size.
func (b *Batch) Column(f, rows int, shared bool) error {
	name := b.plan.features[f].Name
	switch {
	case b.cols[f].first >= 0:
		return fmt.Errorf("layout: feature %q is in the batch twice", name)
	case shared:
		rows = 1
	case rows != b.size:
		return fmt.Errorf("layout: feature %q has %d elements in a batch of %d; only a SHARED one may differ", name, rows, b.size)
	}
	if len(b.rows)+rows > b.plan.limits.Rows {
		return fmt.Errorf("layout: feature %q: more than the %d rows that Limits.Rows allows", name, b.plan.limits.Rows)
	}
	at := len(b.rows)
	b.cols[f] = column{first: at, n: rows, shared: shared}
	b.rows = slices.Grow(b.rows, rows)[:at+rows]
	clear(b.rows[at:])
	return nil
}

// Row sets the ids of one row of feature f: sample's, or row 0 of a shared one. Ids of
// version 1 are converted. No ids leave the row as it is; a row is set once.
func (b *Batch) Row(f, row int, v1 bool, fids []uint64) error {
	at := len(b.fids)
	if v1 {
		for _, fid := range fids {
			b.fids = append(b.fids, V2FromV1(fid))
		}
	} else {
		b.fids = append(b.fids, fids...)
	}
	return b.close(f, row, at)
}

// Single sets one id, of version 2, for each row of feature f: Row for a whole column.
func (b *Batch) Single(f int, fids []int64) error {
	c, at := b.cols[f], len(b.fids)
	switch name := b.plan.features[f].Name; {
	case c.first < 0 || c.n != len(fids):
		return fmt.Errorf("layout: %d ids for feature %q, which has %d rows: give one for each", len(fids), name, len(b.spans(f)))
	case at+len(fids) > b.plan.limits.FIDs:
		return b.tooManyFIDs()
	}
	rows := b.rows[c.first : c.first+c.n]
	for i := range rows {
		if rows[i].n > 0 {
			return fmt.Errorf("layout: sample %d has feature %q twice", i, b.plan.features[f].Name)
		}
	}
	b.fids = slices.Grow(b.fids, len(fids))[:at+len(fids)]
	for i, fid := range fids {
		b.fids[at+i], rows[i] = uint64(fid), span{uint32(at + i), 1}
	}
	return nil
}

// Ragged sets the ids, of version 2, of each row of feature f: Row for a whole column, of
// which row i has those up to ends[i].
func (b *Batch) Ragged(f int, fids []int64, ends []int32) error {
	c, at := b.cols[f], len(b.fids)
	switch name := b.plan.features[f].Name; {
	case c.first < 0 || c.n != len(ends):
		return fmt.Errorf("layout: %d ends for feature %q, which has %d rows: give one for each", len(ends), name, len(b.spans(f)))
	case at+len(fids) > b.plan.limits.FIDs:
		return b.tooManyFIDs()
	case len(ends) > 0 && int(ends[len(ends)-1]) != len(fids) || len(ends) == 0 && len(fids) > 0:
		return fmt.Errorf("layout: the rows of feature %q do not end with its %d ids", name, len(fids))
	}
	rows, begin := b.rows[c.first:c.first+c.n], int32(0)
	for i, end := range ends {
		switch {
		case end < begin:
			return fmt.Errorf("layout: feature %q: row %d ends at %d, before it begins at %d", b.plan.features[f].Name, i, end, begin)
		case rows[i].n > 0:
			return fmt.Errorf("layout: sample %d has feature %q twice", i, b.plan.features[f].Name)
		}
		begin = end
	}
	b.fids = slices.Grow(b.fids, len(fids))[:at+len(fids)]
	for i, fid := range fids {
		b.fids[at+i] = uint64(fid)
	}
	begin = 0
	for i, end := range ends {
		if end > begin {
			rows[i] = span{uint32(at) + uint32(begin), uint32(end - begin)}
		}
		begin = end
	}
	return nil
}

// close makes the ids from at on row's.
func (b *Batch) close(f, row, at int) error {
	if len(b.fids) > b.plan.limits.FIDs {
		return b.tooManyFIDs()
	}
	return b.set(f, row, span{uint32(at), uint32(len(b.fids) - at)})
}

func (b *Batch) set(f, row int, ids span) error {
	if ids.n == 0 {
		return nil
	}
	c := b.cols[f]
	if row < 0 || row >= c.n || c.first < 0 {
		return fmt.Errorf("layout: feature %q has no row %d", b.plan.features[f].Name, row)
	}
	s := &b.rows[c.first+row]
	if s.n > 0 {
		return fmt.Errorf("layout: sample %d has feature %q twice", row, b.plan.features[f].Name)
	}
	*s = ids
	return nil
}

func (b *Batch) tooManyFIDs() error {
	return fmt.Errorf("layout: the batch has more than the %d ids that Limits.FIDs allows", b.plan.limits.FIDs)
}

// spans lists the rows of feature f.
func (b *Batch) spans(f int) []span {
	c := b.cols[f]
	if c.first < 0 {
		return noRows[:]
	}
	return b.rows[c.first : c.first+c.n]
}

var noRows [1]span

// FIDs returns the ids of one row, as Row set them, in version 2: for looking, not for
// keeping or writing.
func (b *Batch) FIDs(f, row int) []uint64 {
	s := b.spans(f)[row]
	return b.fids[s.at : s.at+s.n]
}

// Rows returns how many rows feature f has, and whether the one is all samples'.
func (b *Batch) Rows(f int) (n int, shared bool) { return b.cols[f].n, b.cols[f].shared }

// slotGroups says, while an Instance is read, how many ids each slot has and where the
// next of them goes.
type slotGroups struct {
	count [MaxSlotV1 + 1]uint32
	next  [MaxSlotV1 + 1]uint32
	slots []uint32 // those with a count
}

// Slotted sets the rows of sample's features called fc_slot_N or slot_N from the ids of
// an Instance, which are of version 1 and come in any order. Ids of other slots are left
// out.
func (b *Batch) Slotted(sample int, fids []uint64) error {
	g := &b.groups
	defer func() {
		for _, slot := range g.slots {
			g.count[slot] = 0
		}
		g.slots = g.slots[:0]
	}()
	if len(b.fids)+len(fids) > b.plan.limits.FIDs {
		return b.tooManyFIDs()
	}
	for _, fid := range fids {
		slot := SlotV1(fid)
		if g.count[slot] == 0 {
			g.slots = append(g.slots, slot)
		}
		g.count[slot]++
	}
	end := uint32(len(b.fids))
	for _, slot := range g.slots {
		g.next[slot] = ^uint32(0)
		for i, f := range b.plan.bySlot[slot] {
			if i == 0 {
				g.next[slot] = end
				end += g.count[slot]
			}
			if err := b.set(f, sample, span{g.next[slot], g.count[slot]}); err != nil {
				return err
			}
		}
	}
	b.fids = slices.Grow(b.fids, int(end)-len(b.fids))[:end]
	for _, fid := range fids {
		if at := &g.next[SlotV1(fid)]; *at != ^uint32(0) {
			b.fids[*at] = V2FromV1(fid)
			*at++
		}
	}
	return nil
}
