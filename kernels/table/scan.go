package table

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"slices"
)

// Rows returns copies of up to limit rows with ids greater than after, ascending, and
// whether more follow. Start with NoID, go on with the last id received. Each row is
// consistent in itself; rows added or removed between two calls may or may not appear.
func (t *Table) Rows(after int64, limit int) (rows []Row, more bool) {
	for {
		ids, more := t.IDs(after, max(limit, 0))
		rows := make([]Row, 0, len(ids))
		for _, id := range ids {
			if row, ok := t.row(id); ok {
				rows = append(rows, row)
			}
		}
		if len(rows) > 0 || !more || len(ids) == 0 {
			return rows, more
		}
		after = ids[len(ids)-1] // all of the page went meanwhile
	}
}

// IDs lists the first ids after one, ascending, at most limit of them, and whether more
// follow. A table that has not changed since the last page is sorted, once; of one that
// changes from page to page only the page is put in order.
func (t *Table) IDs(after int64, limit int) (ids []int64, more bool) {
	t.sortMu.Lock()
	form := t.form.Load()
	still := t.sortAt == form || t.pagedAt == form
	t.pagedAt = form
	t.sortMu.Unlock()
	if still {
		all := t.ids()
		at, ok := slices.BinarySearch(all, after)
		if ok {
			at++
		}
		all = all[at:]
		n := min(limit, len(all))
		return all[:n], n < len(all)
	}
	keep := min(limit, math.MaxInt32) + 1 // one more, to know whether it is there
	least := make([]int64, 0, min(2*keep, t.Len()+1))
	bound, full := int64(0), false
	cut := func() {
		slices.Sort(least)
		if len(least) >= keep {
			least = least[:keep]
			bound, full = least[keep-1], true
		}
	}
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		s.each(func(hash uint64, _ uint32) bool {
			id := idOf(hash)
			if id > after && (!full || id < bound) {
				if least = append(least, id); len(least) >= 2*keep {
					cut()
				}
			}
			return true
		})
		s.mu.RUnlock()
	}
	cut()
	n := min(limit, len(least))
	return least[:n], n < len(least)
}

// Snapshot returns a copy of every row, ascending by id, as of one moment between calls
// that write: those wait meanwhile.
func (t *Table) Snapshot() []Row {
	t.cut.Lock()
	defer t.cut.Unlock()
	rows := make([]Row, 0, t.Len())
	t.each(func(r Row) { rows = append(rows, r) })
	return rows
}

// Hash is the Hasher's sum over every row, as of one moment between calls that write.
// Equal tables have equal hashes, whatever order their rows came in.
func (t *Table) Hash() string {
	t.cut.Lock()
	defer t.cut.Unlock()
	h := NewHasher(t.dim)
	t.each(h.Add)
	return h.Sum()
}

// Hasher hashes rows that are handed to it ascending by id: SHA-256 over the dim and,
// per row, id, time, number of slots, values and slots, little endian. Tags stay out:
// they say where a row came from, not what it is.
type Hasher struct {
	h   hash.Hash
	buf []byte
}

// NewHasher starts a hash of rows with dim values.
func NewHasher(dim int) *Hasher {
	h := &Hasher{h: sha256.New()}
	h.buf = binary.LittleEndian.AppendUint64([]byte("rows\x01"), uint64(dim))
	h.h.Write(h.buf)
	return h
}

// Add takes the next row.
func (h *Hasher) Add(r Row) {
	b := binary.LittleEndian.AppendUint64(h.buf[:0], uint64(r.ID))
	b = binary.LittleEndian.AppendUint32(b, r.UnixSec)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Slots)))
	for _, v := range r.Values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	for _, v := range r.Slots {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	h.h.Write(b)
	h.buf = b
}

// Sum is the hash so far, in hexadecimal.
func (h *Hasher) Sum() string { return hex.EncodeToString(h.h.Sum(nil)) }

// each calls f with a copy of every row, ascending. The caller holds cut for writing.
func (t *Table) each(f func(Row)) {
	for _, id := range t.ids() {
		if r, ok := t.row(id); ok {
			f(r)
		}
	}
}

// row is a copy of one row, taken at one moment.
func (t *Table) row(id int64) (Row, bool) {
	hash := hashOf(id)
	s := t.shardOf(hash)
	s.mu.RLock()
	defer s.mu.RUnlock()
	at, ok := s.find(hash)
	if !ok {
		return Row{}, false
	}
	f := make([]float32, t.dim+t.slots)
	t.read(f[:t.dim], at)
	copy(f[t.dim:], t.slotsOf(at))
	return Row{ID: id, Values: f[:t.dim:t.dim], Slots: f[t.dim:], UnixSec: *t.time(at), Tag: t.tag(at)}, true
}

// LookupEntries returns copies of the whole rows of ids, in that order; ok says which of
// them exist. Nothing is inserted. A serving row's values are what its compressor makes
// of them.
func (t *Table) LookupEntries(ids []int64) (rows []Row, ok []bool) {
	rows, ok = make([]Row, len(ids)), make([]bool, len(ids))
	for i, id := range ids {
		rows[i], ok[i] = t.row(id)
		rows[i].ID = id
	}
	return rows, ok
}

// ids returns every id, ascending. The slice is shared and not to be changed. It is
// kept until a row is added or removed, so paging through a table sorts it once.
func (t *Table) ids() []int64 {
	t.sortMu.Lock()
	defer t.sortMu.Unlock()
	form := t.form.Load()
	if t.sortAt == form {
		return t.sorted
	}
	ids := make([]int64, 0, t.Len())
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		s.each(func(hash uint64, _ uint32) bool {
			ids = append(ids, idOf(hash))
			return true
		})
		s.mu.RUnlock()
	}
	slices.Sort(ids)
	// A row that came or went meanwhile has moved form past this one, so the list is
	// made again next time.
	t.sorted, t.sortAt = ids, form
	return ids
}
