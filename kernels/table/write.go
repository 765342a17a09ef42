package table

import (
	"fmt"
)

// write brings the rows of p's ids about and hands them to f, some of one shard at a
// time: slots with the row's address, 0 for an id that was not admitted, and its
// number; k is 1 for a row that was inserted for it. The shard's lock is held and seq is
// odd, so whatever f does to these rows is seen by nobody before it is complete.
func (t *Table) write(p *plan, ask bool, f func(slots []slot, from int)) error {
	missing, err := t.admit(p, ask)
	if err != nil {
		return err
	}
	defer t.reserved.Add(-missing)
	lost := 0
	if t.backend == plain {
		var slots [burst]slot
		for from := 0; from < len(p.hash); {
			to := from + 1
			s := t.shardOf(p.hash[from])
			for to < len(p.hash) && to-from < burst && t.shardOf(p.hash[to]) == s {
				to++
			}
			clear(slots[:])
			for i := range slots {
				slots[i].then = 1
			}
			lost += t.writeSome(s, p, slots[:to-from], from, f)
			from = to
		}
	} else if len(p.hash) > 0 {
		pipe := t.writerPipe()
		p.pipe = pipe
		each := func(slots []slot, from int) {
			for len(slots) > 0 {
				n := 1
				for n < len(slots) && slots[n].now == slots[0].now {
					n++
				}
				s := t.shardOf(p.hash[from])
				lost += t.writeSome(s, p, slots[:n], from, f)
				slots, from = slots[n:], from+n
			}
		}
		if p.staged {
			pipe.runStages(p.hash, each)
		} else {
			pipe.run(signed(p.hash), each)
		}
		pipe.done()
		p.pipe = nil
	}
	if lost > 0 {
		return fmt.Errorf("table %s: %w: %d ids found no place and were left out, the rest was written: of ids that share two thirds of their hash, which only chosen ones do, a table holds a dozen, and 2^32 rows in all", t.cfg.Name, ErrCrowded, lost)
	}
	return nil
}

// writeSome does one shard's part.
func (t *Table) writeSome(s *shard, p *plan, slots []slot, from int, f func([]slot, int)) (lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	defer s.finish()
	form := s.head.form
	for i := range slots {
		at := &slots[i]
		at.k = 0
		if at.then == form && at.at != 0 {
			continue // as it was when the pipe saw it
		}
		hash := p.hash[from+i]
		row, ok := uint32(0), false
		if at.then != form { // else nobody but this call has inserted since, and never this id
			row, ok = s.find(hash)
		}
		if !ok {
			at.at = 0
			if len(p.skip) > 0 && p.skip[from+i] {
				continue
			}
			if row, ok = t.newRow(s); ok {
				s.reform()
				if ok = t.insert(s, hash, row); !ok {
					s.free = append(s.free, row)
				}
				s.reformed()
			}
			if !ok {
				lost++
				continue
			}
			t.size.Add(1)
			t.form.Add(1)
			t.start(row, idOf(hash))
			at.k = 1
		}
		at.at, at.key = uintptr(t.rows.At(row)), uint64(row)
	}
	if p.touch {
		t.touchSome(s, p.hash[from:], slots)
	}
	f(slots, from)
	return lost
}

// start sets a row that was just inserted to its first values.
func (t *Table) start(row uint32, id int64) {
	*t.time(row) = 0
	if t.serving {
		clear(t.stored(row))
		return
	}
	w, slots := t.values(row), t.slotsOf(row)
	for i := range t.parts {
		p := &t.parts[i]
		p.Initializer.Init(w[p.at:p.to], t.keyOf(i, id))
		p.Optimizer.InitSlots(slots[p.slotAt:p.slotTo])
	}
}

// keyOf names the draw of segment i of a row: the first segment's is Key.
func (t *Table) keyOf(i int, id int64) uint64 { return keyOf(t.key, id) + uint64(i)*segmentKey }

const segmentKey = 0xd1342543de82ef95

// admit asks the admitter about p's ids that have no row, and makes sure that the limits
// leave room for the others. What it reserves is to be given back.
func (t *Table) admit(p *plan, ask bool) (reserved int64, err error) {
	ask = ask && t.cfg.Admitter != nil
	limited := t.cfg.MaxRows > 0 || t.cfg.MaxBytes > 0
	if !ask && !limited {
		return 0, nil
	}
	var absent []int
	for i, hash := range p.hash {
		s := t.shardOf(hash)
		s.mu.RLock()
		_, ok := s.find(hash)
		s.mu.RUnlock()
		if !ok {
			absent = append(absent, i)
		}
	}
	if limited { // before the admitter counts occurrences that come to nothing
		if err := t.reserve(int64(len(absent))); err != nil {
			return 0, err
		}
		reserved = int64(len(absent))
	}
	if ask {
		p.skip = fit(p.skip, len(p.hash))
		clear(p.skip)
		for _, i := range absent {
			p.skip[i] = !t.cfg.Admitter.Admit(p.id(i), p.occurrences(i))
		}
	}
	return reserved, nil
}

// reserve makes sure that n rows more are within the limits. Calls that reserve at the
// same moment may be refused together where one alone would not.
func (t *Table) reserve(n int64) error {
	if n == 0 {
		return nil
	}
	rows := t.size.Load() + t.reserved.Add(n)
	if limit := int64(t.cfg.MaxRows); limit > 0 && rows > limit {
		t.reserved.Add(-n)
		return fmt.Errorf("table %s: %w: %d rows and %d new ones are more than MaxRows, %d: raise it, remove rows, let them expire sooner or admit fewer; nothing was changed", t.cfg.Name, ErrFull, rows-n, n, limit)
	}
	if limit := t.cfg.MaxBytes; limit > 0 {
		if bytes := t.bytesFor(rows); bytes > limit {
			t.reserved.Add(-n)
			return fmt.Errorf("table %s: %w: %d rows and %d new ones take %d bytes, more than MaxBytes, %d: raise it, remove rows, let them expire sooner or admit fewer; nothing was changed", t.cfg.Name, ErrFull, rows-n, n, bytes, limit)
		}
	}
	return nil
}

// bytesFor is what rows take: an index entry has 80 bits and an eleventh more, and the
// index is at least as great as it is.
func (t *Table) bytesFor(rows int64) int64 {
	each := int64(t.rows.Size() + t.times.Size())
	if len(t.tags.Chunks()) > 0 {
		each += int64(t.tags.Size())
	}
	return rows*each + max(rows*12, t.index())
}

// index is the size of all shards' arrays of buckets.
func (t *Table) index() (bytes int64) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		bytes += int64(s.cur.Bytes + s.next.Bytes)
		s.mu.RUnlock()
	}
	return bytes
}

// stamp sets the time of a row's update.
func (t *Table) stamp(row uint32, unixSec uint32) { *t.time(row) = unixSec }

// seen moves newest up to unixSec.
func (t *Table) seen(unixSec uint32) {
	for old := t.newest.Load(); unixSec > old && !t.newest.CompareAndSwap(old, unixSec); old = t.newest.Load() {
	}
}

// reached moves step up to step.
func (t *Table) reached(step int64) {
	for old := t.step.Load(); step > old && !t.step.CompareAndSwap(old, step); old = t.step.Load() {
	}
}

func (t *Table) checkBlock(what string, ids []int64, block []float32) error {
	if len(block) != len(ids)*t.dim {
		return fmt.Errorf("table %s: %s of %d ids needs %d floats, not %d: give len(ids)*dim", t.cfg.Name, what, len(ids), len(ids)*t.dim, len(block))
	}
	return nil
}

// plan makes p the plan of ids.
func (t *Table) plan(what string, p *plan, ids []int64, block []float32) error {
	if len(ids) > maxCall {
		return fmt.Errorf("table %s: %s of %d ids at once: give %d at most", t.cfg.Name, what, len(ids), maxCall)
	}
	p.touch = t.marks != nil
	if !p.build(t.backend, ids, block, t.dim) {
		return fmt.Errorf("table %s: %s of id %d, which is reserved; nothing was changed", t.cfg.Name, what, int64(NoID))
	}
	return nil
}

// maxCall bounds the ids of a call that writes.
const maxCall = 1 << 26
