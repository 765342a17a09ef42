package table

import (
	"bytes"
	"fmt"
	"unsafe"
)

// cell is one row as it is stored, or that there is none.
type cell struct {
	has     bool
	stored  []byte // valueBytes, of the holder; kept where there is no row
	unixSec uint32
	tag     uint64
	row     uint32 // its number, where it was read from or written to
}

// equal says whether both are the same row, or none.
func (c *cell) equal(d *cell) bool {
	return c.alike(d) && (!c.has || c.unixSec == d.unixSec && c.tag == d.tag)
}

// alike says whether both have the same weights, or none.
func (c *cell) alike(d *cell) bool {
	return c.has == d.has && (!c.has || bytes.Equal(c.stored, d.stored))
}

// peek copies the row of hash to c, whose memory it uses.
func (t *Table) peek(hash uint64, c *cell) bool {
	s := t.shardOf(hash)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c.row, c.has = s.find(hash); c.has {
		copy(c.stored, t.stored(c.row))
		c.unixSec, c.tag = *t.time(c.row), t.tag(c.row)
	}
	return c.has
}

// poke makes the row of hash the one in c, and drops it where c has none. It fails only where too many
// ids share the first bits of their hash.
func (t *Table) poke(hash uint64, c *cell) error {
	s := t.shardOf(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.has {
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
			return fmt.Errorf("table %s: %w: id %d found no place", t.cfg.Name, ErrCrowded, idOf(hash))
		}
		t.size.Add(1)
		t.form.Add(1)
	}
	copy(t.stored(row), c.stored)
	t.stamp(row, c.unixSec)
	t.setTag(row, c.tag)
	c.row = row
	return nil
}

// hashesOf are those of the rows of a shard of which keep says so.
func (t *Table) hashesOf(s *shard, keep func(row uint32) bool) (hashes []uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.each(func(hash uint64, row uint32) bool {
		if keep == nil || keep(row) {
			hashes = append(hashes, hash)
		}
		return true
	})
	return hashes
}

// newCell is one without a row, with room for one.
func (l *layout) newCell() cell {
	// Of words, as compressors may want floats aligned.
	words := make([]uint64, (l.valueBytes+7)/8)
	return cell{stored: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), l.valueBytes)}
}
