package table

import "github.com/monolith-go/monolith/kernels/radix"

// touched is the entry of a row that was written since the list was last taken. It is void
// where the row's mark is gone or a later entry has the same row: the row was removed then.
type touched struct {
	hash uint64
	row  uint32
}

// mark is 1 for a row that stands in its shard's list. It has a byte to itself, as rows of
// shards that are written at the same moment lie side by side.
func (t *Table) mark(row uint32) *byte { return (*byte)(t.marks.At(row)) }

// touch lists a row unless it is listed, and says whether it was not. The caller holds the
// lock of s.
func (t *Table) touch(s *shard, hash uint64, row uint32) bool {
	m := t.mark(row)
	if *m != 0 {
		return false
	}
	*m = 1
	s.touched = append(s.touched, touched{hash, row})
	return true
}

// touchSome lists the rows of slots.
func (t *Table) touchSome(s *shard, hashes []uint64, slots []slot) {
	n := int64(0)
	for i := range slots {
		if slots[i].at != 0 && t.touch(s, hashes[i], uint32(slots[i].key)) {
			n++
		}
	}
	if n > 0 {
		t.listed.Add(n)
	}
}

// untouch takes a row that is about to be removed off the list.
func (t *Table) untouch(s *shard, hash uint64) {
	if t.marks == nil {
		return
	}
	if row, ok := s.find(hash); ok && *t.mark(row) != 0 {
		*t.mark(row) = 0
		t.listed.Add(-1)
	}
}

// Touched is the number of rows that TakeTouched would list.
func (t *Table) Touched() int { return int(t.listed.Load()) }

// Touch lists the rows of ids as if they had been written, and returns the ids without a
// row, in the order given. The table must have been made with Track.
func (t *Table) Touch(ids []int64) (missing []int64) {
	for _, id := range ids {
		hash := hashOf(id)
		s := t.shardOf(hash)
		s.mu.Lock()
		row, ok := s.find(hash)
		if ok && t.touch(s, hash, row) {
			t.listed.Add(1)
		}
		s.mu.Unlock()
		if !ok {
			missing = append(missing, id)
		}
	}
	return missing
}

// Unlisted returns those of ids that have a row which is not listed, in the order given. The table
// must have been made with Track.
func (t *Table) Unlisted(ids []int64) (clean []int64) {
	for _, id := range ids {
		hash := hashOf(id)
		s := t.shardOf(hash)
		s.mu.Lock()
		if row, ok := s.find(hash); ok && *t.mark(row) == 0 {
			clean = append(clean, id)
		}
		s.mu.Unlock()
	}
	return clean
}

// TouchAll lists every row. The table must have been made with Track.
func (t *Table) TouchAll() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.each(func(hash uint64, row uint32) bool {
			if t.touch(s, hash, row) {
				t.listed.Add(1)
			}
			return true
		})
		s.mu.Unlock()
	}
}

// keptTouched is how long a shard's list may be and keep its memory once it was taken.
const keptTouched = 4096

// TakeTouched returns the ids of the rows that were written since the last call, ascending,
// each once, and begins a new list. Rows removed meanwhile are not among them. Calls that
// write at the same time come into this list or the next. A table made without Track has
// none.
func (t *Table) TakeTouched() []int64 {
	if t.listed.Load() == 0 {
		return nil
	}
	ids := make([]int64, 0, max(t.listed.Load(), 0))
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		before := len(ids)
		for j := len(s.touched) - 1; j >= 0; j-- { // the last entry of a row is the one that counts
			if x := s.touched[j]; *t.mark(x.row) != 0 {
				*t.mark(x.row) = 0
				ids = append(ids, idOf(x.hash))
			}
		}
		if s.touched = s.touched[:0]; cap(s.touched) > keptTouched {
			s.touched = nil
		}
		t.listed.Add(-int64(len(ids) - before))
		s.mu.Unlock()
	}
	return radix.Sort(ids)
}
