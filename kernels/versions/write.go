package versions

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/kernels/table"
)

const (
	// turnOf is how many rows a writer of one of several versions does before another one may go on.
	turnOf = 256
	// keptCover is of how many rows an empty layer keeps the memory.
	keptCover = 1 << 14
	// packedUpTo is how many rows a layer may have that is packed, while writers wait.
	packedUpTo = 1 << 17
)

// set makes version i show x for an id, and no other version anything else than it did. same says what
// need not be written. The caller holds mu; x is not one of the scratch cells but new.
func (s *Table) set(i int, id int64, x *table.Cell, same func(a, b *table.Cell) bool) (err error) {
	v, top := s.line[i], s.line[i].top.Load()
	newest := i == len(s.line)-1
	s.view(top, id, &s.old)
	if same(&s.old, x) {
		if newest {
			v.saw(&s.old)
		}
		return nil
	}
	seq := s.stripe(id)
	seq.Add(1)
	defer seq.Add(1)
	var before *layer
	again := false // x is what the version before shows
	if i > 0 {
		before = s.line[i-1].top.Load()
		if s.isCovered(before, id, &s.next) {
			again = equal(&s.next, x)
		} else if err := s.cover(before, id, &s.old); err != nil {
			return err // rather an old row in this version than a new one in that
		}
	}
	if newest {
		if err = s.base.Poke(id, x); err == nil {
			v.saw(x)
		}
	} else if s.view(top.below.Load(), id, &s.next); equal(&s.next, x) {
		s.uncover(top, id)
	} else {
		err = s.cover(top, id, x)
	}
	if err == nil && again {
		s.uncover(before, id)
	}
	return err
}

// equal says whether both are the same row, or none.
func equal(a, b *table.Cell) bool {
	return alike(a, b) && (!a.Has || a.UnixSec == b.UnixSec && a.Tag == b.Tag)
}

// alike says whether both have the same weights, or none.
func alike(a, b *table.Cell) bool {
	return a.Has == b.Has && (!a.Has || bytes.Equal(a.Stored, b.Stored))
}

// saw notes that a row of the table is the version's own.
func (v *Version) saw(c *table.Cell) {
	if v.load == nil || !c.Has {
		return
	}
	l := v.load
	if at := int(c.Row / 64); at >= len(l.seen) {
		l.seen = slices.Grow(l.seen, at+1-len(l.seen))[:at+1]
	}
	l.seen[c.Row/64] |= 1 << (c.Row % 64)
}

// each calls f with the version's place, some rows at a time, as other writers may come between.
func (v *Version) each(n int, f func(i, row int) error) error {
	var first error
	s := v.set
	for from := 0; from < n; from += turnOf {
		err := func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			i := slices.Index(s.line, v)
			if i < 0 {
				return v.dropped()
			}
			for row := from; row < min(n, from+turnOf); row++ {
				if err := f(i, row); err != nil && first == nil {
					first = err
				}
			}
			s.shrink()
			return nil
		}()
		if err != nil {
			return err
		}
	}
	return first
}

// shrink lets the memory of layers go that cover nothing any more.
func (s *Table) shrink() {
	for _, v := range s.line[:len(s.line)-1] {
		top := v.top.Load()
		rows := top.rows.Load()
		if rows == nil {
			continue
		}
		n := rows.Len()
		if top.most = max(top.most, n); n == 0 && top.most > keptCover {
			top.rows.Store(nil)
			top.most = 0
		}
	}
}

// alone runs f where v is the only version, whose rows are the table's.
func (v *Version) alone(f func(*table.Table) error) (was bool, err error) {
	s := v.set
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.line) != 1 || s.line[0] != v || v.load != nil && v.load.took {
		return false, nil
	}
	return true, f(s.base)
}

func (v *Version) dropped() error { return fmt.Errorf("table %s: %w", v.set.Name(), ErrDropped) }

// Assign is that of a table. An error that is not ErrCrowded leaves the version unchanged.
func (v *Version) Assign(ids []int64, values []float32, unixSec uint32, tag uint64) error {
	if was, err := v.alone(func(t *table.Table) error { return t.Assign(ids, values, unixSec, tag) }); was {
		return err
	}
	t := v.set.base
	if err := t.CheckAssign(ids, values); err != nil {
		return err
	}
	return v.each(len(ids), func(i, row int) error {
		x := &v.set.new
		x.UnixSec, x.Tag = unixSec, tag
		t.Encode(x, values[row*t.Dim():(row+1)*t.Dim()])
		return v.set.set(i, ids[row], x, equal)
	})
}

// Remove drops rows of the version.
func (v *Version) Remove(ids []int64) {
	if was, _ := v.alone(func(t *table.Table) error { t.Remove(ids); return nil }); was {
		return
	}
	_ = v.each(len(ids), func(i, row int) error {
		x := &v.set.new
		x.Has = false
		return v.set.set(i, ids[row], x, equal)
	})
}

// Restore gives a version that is not whole rows of its own. One whose weights are those that it took over
// stays as it is, with its time and tag.
func (v *Version) Restore(rows []table.Row) error {
	if was, err := v.alone(func(t *table.Table) error { return t.Restore(rows) }); was {
		return err
	}
	if err := v.set.base.CheckRows(rows); err != nil {
		return err
	}
	return v.each(len(rows), func(i, row int) error {
		x, r := &v.set.new, &rows[row]
		x.UnixSec, x.Tag = r.UnixSec, r.Tag
		v.set.base.Encode(x, r.Values)
		return v.set.set(i, r.ID, x, alike)
	})
}

// Whole ends what Next began: the rows of the version before that were not restored go.
func (v *Version) Whole() error {
	s := v.set
	if v.load != nil && v.load.took {
		seen := func(row uint32) bool {
			at := int(row / 64)
			return at < len(v.load.seen) && v.load.seen[at]>>(row%64)&1 != 0
		}
		for part := range table.Parts {
			gone := s.base.IDsOf(part, func(row uint32) bool { return !seen(row) })
			err := v.each(len(gone), func(i, row int) error {
				x := &s.new
				x.Has = false
				return s.set(i, gone[row], x, equal)
			})
			if err != nil {
				return err
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v.load = nil
	if i := slices.Index(s.line, v); i > 0 {
		return s.pack(s.line[i-1].top.Load())
	}
	return nil
}

// pack makes a layer anew that will hardly grow any more, as great as it need be. Of great ones little is gained.
func (s *Table) pack(l *layer) error {
	old := l.rows.Load()
	if old == nil || old.Len() == 0 || old.Len() > packedUpTo {
		return nil
	}
	cfg := s.cfg
	cfg.Capacity = old.Len()
	rows, err := table.New(cfg)
	if err != nil {
		return err
	}
	for part := range table.Parts {
		for _, id := range old.IDsOf(part, nil) {
			old.Peek(id, &s.new)
			if err := rows.Poke(id, &s.new); err != nil {
				return nil // the one that is there has room
			}
		}
	}
	l.rows.Store(rows)
	return nil
}
