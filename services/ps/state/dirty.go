package state

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
	"github.com/monolith-go/monolith/services/ps/publish"
)

// ErrDiverged is a parameter that is no finite number: nothing can be learnt from it, and
// no table takes it back from a checkpoint.
var ErrDiverged = errors.New("the model has diverged")

// CollectDirty takes what is touched, or nil when that is nothing. Dense variables come along
// when wanted. The rows are those that the ranges made, not later ones.
func (s *Shard) CollectDirty(dense func(applies int) bool) *publish.Dirty {
	return s.CollectDue(time.Time{}, dense)
}

// CollectDue takes what of it is due at now: of tables with an interval of their own, nothing
// before that is over. Ranges whose rows wait, wait with them.
func (s *Shard) CollectDue(now time.Time, dense func(applies int) bool) *publish.Dirty {
	s.mu.RLock()
	idle := s.unpublished() == 0 && len(s.ranges)+len(s.learnt) == 0 && !s.denseTouched
	s.mu.RUnlock()
	if idle { // so that an idle shard never takes the lock for writing
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &publish.Dirty{Epoch: s.epoch, Step: s.step, Trace: s.trace}
	if s.denseTouched && dense(s.applies) {
		for _, id := range s.bandIDs {
			h.Dense = append(h.Dense, &delta.Variable{Name: id.name, Shape: s.bands[id].Shape, At: uint32(id.at), Values: publish.Floats(s.dense[id].values)})
		}
		s.denseTouched = false
	}
	s.round++
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		rows := s.take(name, now)
		if len(rows.IDs)+len(rows.Removed) > 0 {
			h.Rows = append(h.Rows, rows)
		}
	}
	h.Ranges, s.applies, s.trace = s.contained(), 0, ""
	if len(h.Rows) == 0 && len(h.Ranges) == 0 && len(h.Dense) == 0 {
		return nil
	}
	h.Bad = s.finite(h)
	return h
}

// take copies the rows of a table that are listed and due, and those of gone that have come back.
// The others of gone are removed. The caller holds mu.
func (s *Shard) take(name string, now time.Time) publish.Rows {
	t, w, kind := s.tables[name], s.waiting[name], s.kinds[name]
	h := publish.Rows{Table: name, Dim: t.Dim(), Format: kind.format}
	all := w == nil || w.due(now)
	if !all && w.followers == nil {
		w.wait(s.round, t.Touched()+len(s.gone[name]) > 0)
		return h
	}
	h.Removed = t.Touch(slices.Sorted(maps.Keys(s.gone[name])))
	delete(s.gone, name)
	h.IDs = t.TakeTouched()
	if w == nil || w.followers == nil {
		h.Values = values(t, kind, h.IDs)
	} else {
		w.choose(&h, t, kind, all)
	}
	if w != nil && all && len(h.IDs)+len(h.Removed) > 0 {
		w.went(now)
	}
	if w != nil {
		w.wait(s.round, w.holds())
	}
	return h
}

// values are those of rows that are there. Lookups of a compressed table show something else than
// what its rows hold.
func values(t *table.Table, kind tableKind, ids []int64) []float32 {
	all := make([]float32, len(ids)*t.Dim())
	if kind.compressed {
		rows, _ := t.LookupEntries(ids)
		for i := range rows {
			copy(all[i*t.Dim():(i+1)*t.Dim()], rows[i].Values)
		}
		return all
	}
	if found, err := t.Lookup(ids, all, nil); err != nil || found != len(ids) {
		panic(fmt.Sprintf("ps: table %s lists %d rows and has %d of them: %v", t.Name(), len(ids), found, err))
	}
	return all
}

// finite complains about rows and variables of h that are not finite. The caller holds mu.
func (s *Shard) finite(h *publish.Dirty) error {
	for i := range h.Rows {
		r := &h.Rows[i]
		if vec.MaxAbs(r.Values) <= math.MaxFloat32 {
			continue
		}
		for k, id := range r.IDs {
			if row := r.Values[k*r.Dim : (k+1)*r.Dim]; !(vec.MaxAbs(row) <= math.MaxFloat32) {
				return fmt.Errorf("%w: row %d of table %q is %v after step %d", ErrDiverged, id, r.Table, row[:min(len(row), 4)], h.Step)
			}
		}
	}
	for _, v := range h.Dense {
		if !(vec.MaxAbs(s.dense[bandIDOf(v.GetName(), v.GetAt())].values) <= math.MaxFloat32) {
			return fmt.Errorf("%w: variable %q holds a NaN or an infinite number after step %d", ErrDiverged, v.GetName(), h.Step)
		}
	}
	return nil
}
