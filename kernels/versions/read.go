package versions

import (
	"slices"
	"sync"

	"github.com/monolith-go/monolith/kernels/table"
)

// Name is the name given to New.
func (v *Version) Name() string { return v.set.Name() }

// Of is what it is a version of.
func (v *Version) Of() *Table { return v.set }

// Dim is the number of weights per row.
func (v *Version) Dim() int { return v.set.Dim() }

// Lookup is that of a table.
func (v *Version) Lookup(ids []int64, out []float32, tags []uint64) (found int, err error) {
	for {
		top := v.top.Load()
		if top == nil {
			return 0, v.dropped()
		}
		if top.below.Load() != nil {
			return v.lookupCovered(ids, out, tags)
		}
		found, err := v.set.base.Lookup(ids, out, tags)
		if err != nil || v.top.Load() == top {
			return found, err
		}
	}
}

// lookupTries is how often a reader of an older version looks again at rows that move under its eyes, before
// it keeps writers off.
const lookupTries = 8

// lookupCovered reads through layers. What a version shows of an id moves from one to another only while the
// id's stripe is odd, so rows count whose stripe is the same even number before and after.
func (v *Version) lookupCovered(ids []int64, out []float32, tags []uint64) (found int, err error) {
	dim := v.Dim()
	if len(out) != len(ids)*dim || tags != nil && len(tags) != len(ids) {
		return v.set.base.Lookup(ids, out, tags) // says what is wrong
	}
	r := readings.Get().(*reading)
	defer readings.Put(r)
	r.left = fit(r.left, len(ids))
	for i := range ids {
		r.left[i] = int32(i)
	}
	for try := 0; len(r.left) > 0; try++ {
		if try == lookupTries {
			v.set.mu.RLock()
			defer v.set.mu.RUnlock()
		}
		r.seqs = fit(r.seqs, len(r.left))
		for i, at := range r.left {
			r.seqs[i] = v.set.stripe(ids[at]).Load()
		}
		top := v.top.Load() // after seqs: what is written from now on shows in them
		if top == nil {
			return 0, v.dropped()
		}
		r.walk(v.set, top, ids, dim)
		if v.top.Load() == nil { // since when nobody covers for it
			return 0, v.dropped()
		}
		again := r.left[:0]
		for i, at := range r.left {
			if seq := r.seqs[i]; seq&1 != 0 || v.set.stripe(ids[at]).Load() != seq {
				again = append(again, at)
				continue
			}
			copy(out[int(at)*dim:], r.got[i*dim:(i+1)*dim])
			if r.has[i] {
				found++
			}
			if tags != nil {
				tags[at] = r.gotTags[i]
			}
		}
		r.left = again
	}
	return found, nil
}

// reading is the scratch of a lookup through layers.
type reading struct {
	left []int32 // which ids are to be read still
	seqs []uint32

	got     []float32 // of each of left
	gotTags []uint64
	has     []bool

	rest []int32 // places in left that no layer has covered yet
	ids  []int64 // theirs
	some []float32
	tags []uint64
}

var readings = sync.Pool{New: func() any { return new(reading) }}

// walk reads the rows of left from the layers, the top one first.
func (r *reading) walk(s *Table, top *layer, ids []int64, dim int) {
	n := len(r.left)
	r.got, r.gotTags, r.has = fit(r.got, n*dim), fit(r.gotTags, n), fit(r.has, n)
	r.rest, r.ids, r.some, r.tags = fit(r.rest, n), fit(r.ids, n), fit(r.some, n*dim), fit(r.tags, n)
	for i, at := range r.left {
		r.rest[i], r.ids[i] = int32(i), ids[at]
	}
	for l := top; len(r.rest) > 0; {
		below := l.below.Load()
		m := len(r.rest)
		tags, some := r.tags[:m], r.some[:m*dim]
		if below == nil {
			// A tag of 0 may be that of a row: whether there is one is for the count to say, or each id's.
			found, _ := s.base.Lookup(r.ids[:m], some, tags)
			var c table.Cell
			for k, i := range r.rest {
				copy(r.got[int(i)*dim:], some[k*dim:(k+1)*dim])
				r.gotTags[i] = tags[k]
				r.has[i] = found == m || found > 0 && (tags[k] != 0 || s.base.Peek(r.ids[k], &c))
			}
			return
		}
		rows := l.rows.Load()
		l = below
		if rows == nil {
			continue
		}
		if found, _ := rows.Lookup(r.ids[:m], some, tags); found == 0 {
			continue
		}
		rest := r.rest[:0]
		for k, i := range r.rest {
			switch tags[k] {
			case 0:
				r.ids[len(rest)] = r.ids[k]
				rest = append(rest, i)
				continue
			case covered:
				clear(r.got[int(i)*dim : int(i+1)*dim])
				r.gotTags[i], r.has[i] = 0, false
				continue
			}
			copy(r.got[int(i)*dim:], some[k*dim:(k+1)*dim])
			r.gotTags[i], r.has[i] = tags[k]-1, true
		}
		r.rest = rest
	}
}

// Rows is that of a table. Writers wait while it copies.
func (v *Version) Rows(after int64, limit int) (rows []table.Row, more bool, err error) {
	s := v.set
	s.mu.RLock()
	defer s.mu.RUnlock()
	top := v.top.Load()
	if top == nil {
		return nil, false, v.dropped()
	}
	if top.below.Load() == nil {
		rows, more = s.base.Rows(after, limit)
		return rows, more, nil
	}
	for limit = max(limit, 1); ; {
		page, end, more := s.page(top, after, limit)
		if len(page) > limit {
			page, more = page[:limit], true
		}
		rows := make([]table.Row, 0, len(page))
		c := s.base.NewCell()
		for _, id := range page {
			if s.view(top, id, &c); c.Has {
				r := table.Row{ID: id, Values: make([]float32, s.Dim()), UnixSec: c.UnixSec, Tag: c.Tag}
				s.base.Decode(r.Values, &c)
				rows = append(rows, r)
			}
		}
		if len(rows) > 0 || !more {
			return rows, more, nil
		}
		if after = end; len(page) > 0 {
			after = page[len(page)-1]
		}
	}
}

// page lists ids behind one that any layer has, ascending, all that there are up to end; more: there may be
// others behind it.
func (s *Table) page(top *layer, after int64, limit int) (ids []int64, end int64, more bool) {
	for l := top; l != nil; l = l.below.Load() {
		rows := l.rows.Load()
		if rows == nil {
			continue
		}
		some, others := rows.IDs(after, max(limit, 1))
		ids = append(ids, some...)
		if others && (!more || some[len(some)-1] < end) {
			end, more = some[len(some)-1], true
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if more {
		at, _ := slices.BinarySearch(ids, end+1)
		ids = ids[:at]
	}
	return ids, end, more
}

func fit[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}
