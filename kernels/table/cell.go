package table

import (
	"fmt"
	"slices"
	"unsafe"
)

// Cell is one row of a serving table as it is stored, or that there is none.
type Cell struct {
	Has     bool
	Stored  []byte // the weights, in memory of the holder's; kept where there is no row
	UnixSec uint32
	Tag     uint64
	Row     uint32 // its number, where it was read from or written to
}

// NewCell is one without a row, with room for one.
func (t *Table) NewCell() Cell {
	// Of words, as compressors may want floats aligned.
	words := make([]uint64, (t.valueBytes+7)/8)
	return Cell{Stored: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), t.valueBytes)}
}

// Encode makes c a row of these weights, and none where the table skips zeros.
func (t *Table) Encode(c *Cell, weights []float32) {
	if c.Has = !t.cfg.SkipZero || !almostZero(weights); c.Has {
		t.encode(c.Stored, weights)
	}
}

// Decode makes weights of a row.
func (t *Table) Decode(weights []float32, c *Cell) { t.show(weights, c.Stored, 0) }

// Peek copies the row of an id to c, whose memory it uses.
func (t *Table) Peek(id int64, c *Cell) bool {
	hash := hashOf(id)
	s := t.shardOf(hash)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c.Row, c.Has = s.find(hash); c.Has {
		copy(c.Stored, t.stored(c.Row))
		c.UnixSec, c.Tag = *t.time(c.Row), t.tag(c.Row)
	}
	return c.Has
}

// Poke makes the row of an id the one in c, whatever the limits are, and drops it where c has none. It fails
// only with ErrCrowded.
func (t *Table) Poke(id int64, c *Cell) error {
	hash := hashOf(id)
	s := t.shardOf(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.Has {
		t.removeRow(s, hash)
		return nil
	}
	s.begin()
	defer s.finish()
	row, ok := s.find(hash)
	if !ok {
		if row, ok = t.newRow(s); ok {
			s.reform()
			if ok = t.insert(s, hash, row); !ok {
				s.free = append(s.free, row)
			}
			s.reformed()
		}
		if !ok {
			return fmt.Errorf("table %s: %w: id %d found no place", t.cfg.Name, ErrCrowded, id)
		}
		t.size.Add(1)
		t.form.Add(1)
	}
	copy(t.stored(row), c.Stored)
	t.stamp(row, c.UnixSec)
	t.setTag(row, c.Tag)
	c.Row = row
	return nil
}

// Parts is how many parts a table has for IDsOf.
const Parts = shardCount

// IDsOf are the ids of a part's rows, in no order: of those whose number keep wants; nil: of all.
func (t *Table) IDsOf(part int, keep func(row uint32) bool) (ids []int64) {
	s := &t.shards[part]
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.each(func(hash uint64, row uint32) bool {
		if keep == nil || keep(row) {
			ids = append(ids, idOf(hash))
		}
		return true
	})
	return ids
}

// CheckAssign is the error that Assign would return for its arguments alone.
func (t *Table) CheckAssign(ids []int64, values []float32) error {
	if err := t.checkBlock("assign", ids, values); err != nil {
		return err
	}
	if i := notFinite(values); i >= 0 {
		return fmt.Errorf("table %s: value of id %d is %g at position %d: it must be finite; nothing was assigned", t.cfg.Name, ids[i/t.dim], values[i], i%t.dim)
	}
	if slices.Contains(ids, NoID) {
		return fmt.Errorf("table %s: assign of id %d, which is reserved; nothing was changed", t.cfg.Name, int64(NoID))
	}
	return nil
}
