package table

import (
	"bytes"
	"fmt"
	"math"

	"github.com/monolith-go/monolith/kernels/vec"
)

// Assign sets the weights of rows, their time and tag. A missing row is initialised
// first, if it is admitted; otherwise it stays missing. The last one of several equal
// ids wins. An error leaves the table unchanged.
func (t *Table) Assign(ids []int64, values []float32, unixSec uint32, tag uint64) error {
	return t.assign("assign", ids, values, unixSec, tag, nil, false)
}

// AssignAdd adds to the weights of rows, all that come for one id, in the order given;
// otherwise it is Assign. What is added is within ±MaxGradient, in sum too, so that no
// weight ever becomes infinite.
func (t *Table) AssignAdd(ids []int64, values []float32, unixSec uint32, tag uint64) error {
	return t.assign("assign_add", ids, values, unixSec, tag, values, true)
}

func (t *Table) assign(what string, ids []int64, values []float32, unixSec uint32, tag uint64, sum []float32, add bool) error {
	if err := t.checkBlock(what, ids, values); err != nil {
		return err
	}
	p := plans.Get().(*plan)
	defer plans.Put(p)
	if err := t.plan(what, p, ids, sum); err != nil {
		return err
	}
	most := vec.MaxAbs(values)
	if !(most <= math.MaxFloat32) { // those too that a later equal id replaces
		return t.CheckAssign(ids, values)
	}
	if add && !(max(most, vec.MaxAbs(p.sums)) <= MaxGradient) {
		return fmt.Errorf("table %s: assign_add of a value beyond ±%g: give smaller ones; nothing was assigned", t.cfg.Name, float32(MaxGradient))
	}
	t.cut.RLock()
	defer t.cut.RUnlock()
	var zeros []zeroRow
	scratch := make([]float32, t.dim)
	err := t.write(p, true, func(slots []slot, from int) {
		for i := range slots {
			if slots[i].at == 0 {
				continue
			}
			row, v := uint32(slots[i].key), p.row(values, t.dim, from+i)
			if add {
				t.read(scratch, row)
				for j, x := range v {
					scratch[j] += x
				}
				v = scratch
			}
			t.store(row, v)
			t.stamp(row, unixSec)
			t.setTag(row, tag)
			if t.cfg.SkipZero && almostZero(v) {
				zeros = append(zeros, zeroRow{p.id(from + i), bytes.Clone(t.stored(row))})
			}
		}
	})
	if err == nil {
		t.seen(unixSec)
	}
	t.dropZeros(zeros)
	return err
}

// almostZero is the original's rule for embeddings that are not worth keeping.
func almostZero(v []float32) bool {
	var norm float32
	for _, x := range v {
		norm += x * x
	}
	return norm < 0x1p-126
}

// zeroRow is a row that was set to (almost) zero, as it was stored: one_bit, for example,
// stores no zeros.
type zeroRow struct {
	id     int64
	stored []byte
}

// dropZeros removes rows that nobody has set anew. The caller holds cut.
func (t *Table) dropZeros(rows []zeroRow) {
	for _, z := range rows {
		hash := hashOf(z.id)
		s := t.shardOf(hash)
		s.mu.Lock()
		if row, ok := s.find(hash); ok && bytes.Equal(t.stored(row), z.stored) {
			t.removeRow(s, hash)
		}
		s.mu.Unlock()
	}
}

// store sets the weights of a row.
func (t *Table) store(row uint32, v []float32) {
	if !t.serving {
		copy(t.values(row), v)
		return
	}
	t.encode(t.stored(row), v)
}

// read gets the weights of a row as they are, not as training sees them.
func (t *Table) read(v []float32, row uint32) {
	if !t.serving {
		copy(v, t.values(row))
		return
	}
	t.show(v, t.stored(row), 0)
}

// Reinitialize sets rows back to their first values, slots too, and inserts those that
// are missing, if they are admitted. had[i] says whether ids[i] had a row. Times become
// unixSec, tags 0.
func (t *Table) Reinitialize(ids []int64, unixSec uint32) (had []bool, err error) {
	if t.serving {
		return nil, fmt.Errorf("table %s: reinitialize: this is a serving table, it knows no first values: make a training table for it", t.cfg.Name)
	}
	p := plans.Get().(*plan)
	defer plans.Put(p)
	if err := t.plan("reinitialize", p, ids, nil); err != nil {
		return nil, err
	}
	t.cut.RLock()
	defer t.cut.RUnlock()
	fresh := map[int64]bool{}
	err = t.write(p, true, func(slots []slot, from int) {
		for i := range slots {
			if slots[i].at == 0 || slots[i].k == 1 {
				fresh[p.id(from+i)] = true
			}
			if slots[i].at == 0 {
				continue
			}
			row := uint32(slots[i].key)
			t.start(row, p.id(from+i))
			t.stamp(row, unixSec)
			t.setTag(row, 0)
		}
	})
	if err != nil {
		return nil, err
	}
	t.seen(unixSec)
	had = make([]bool, len(ids))
	for i, id := range ids {
		had[i] = !fresh[id]
		delete(fresh, id) // its second occurrence finds the row
	}
	return had, nil
}

// Restore sets whole rows, adding to what is there (Clear first where only rows are to
// remain). Empty Slots mean fresh optimizers. The last one of several equal ids wins.
// An error leaves the table unchanged.
func (t *Table) Restore(rows []Row) error {
	if err := t.CheckRows(rows); err != nil {
		return err
	}
	ids := make([]int64, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	t.cut.RLock()
	defer t.cut.RUnlock()
	var zeros []int64
	if t.cfg.SkipZero {
		last := make(map[int64]int, len(rows))
		for i := range rows {
			last[rows[i].ID] = i
		}
		kept, keptIDs := rows[:0:0], ids[:0:0]
		for i := range rows {
			if last[rows[i].ID] != i {
				continue
			}
			if almostZero(rows[i].Values) {
				zeros = append(zeros, rows[i].ID)
				continue
			}
			kept, keptIDs = append(kept, rows[i]), append(keptIDs, rows[i].ID)
		}
		rows, ids = kept, keptIDs
	}
	p := plans.Get().(*plan)
	defer plans.Put(p)
	if err := t.plan("restore", p, ids, nil); err != nil {
		return err
	}
	newest := uint32(0)
	p.touch = false // what a checkpoint holds is no news
	err := t.write(p, false, func(slots []slot, from int) {
		for i := range slots {
			if slots[i].at == 0 {
				continue
			}
			row, r := uint32(slots[i].key), &rows[p.from[from+i]]
			t.store(row, r.Values)
			switch state := t.slotsOf(row); {
			case t.serving:
			case len(r.Slots) > 0:
				copy(state, r.Slots)
			case slots[i].k == 0:
				for j := range t.parts {
					part := &t.parts[j]
					part.Optimizer.InitSlots(state[part.slotAt:part.slotTo])
				}
			}
			t.stamp(row, r.UnixSec)
			t.setTag(row, r.Tag)
			newest = max(newest, r.UnixSec)
		}
	})
	if err != nil {
		return err
	}
	t.seen(newest)
	for _, id := range zeros {
		hash := hashOf(id)
		s := t.shardOf(hash)
		s.mu.Lock()
		t.removeRow(s, hash)
		s.mu.Unlock()
	}
	return nil
}

// CheckRows refuses rows that no table of this layout holds.
func (t *Table) CheckRows(rows []Row) error {
	for i := range rows {
		switch r := &rows[i]; {
		case r.ID == NoID:
			return fmt.Errorf("table %s: id %d is reserved: rows with it cannot be kept", t.cfg.Name, r.ID)
		case len(r.Values) != t.dim:
			return fmt.Errorf("table %s: id %d has %d values where dim is %d: was it saved by another model? nothing was restored", t.cfg.Name, r.ID, len(r.Values), t.dim)
		case len(r.Slots) != 0 && len(r.Slots) != t.slots && !t.serving:
			return fmt.Errorf("table %s: id %d has %d slots where the optimizer keeps %d: was it saved with another optimizer? nothing was restored", t.cfg.Name, r.ID, len(r.Slots), t.slots)
		case notFinite(r.Values) >= 0 || notFinite(r.Slots) >= 0:
			return fmt.Errorf("table %s: id %d holds a NaN or an infinite number; nothing was restored", t.cfg.Name, r.ID)
		}
	}
	return nil
}
