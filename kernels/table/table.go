// Package table keeps embedding rows by id, without collisions.
//
// A row is Dim weights, the optimizer's slots, the time of its last update and a tag of
// the caller's. Rows lie in fixed slabs, 64 shards by hash, each under its own lock: a
// reader sees a row before an update or after it, never between. Which rows exist and
// what they hold depends on the calls made, not on timing: duplicate ids in one call are
// taken in the order given, and a new row's first value is keyed by (seed, table, id).
package table

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/monolith-go/monolith/kernels/optim"
)

const (
	// MaxDim bounds a row.
	MaxDim = 1 << 16
	// MaxGradient bounds each element of a summed gradient: past it, float32 squares
	// no longer add up, so it is refused as infinite ones are.
	MaxGradient = 1e15
	// NoID is the one id that cannot be stored; Rows starts behind it.
	NoID = math.MinInt64
)

// Config describes a table. All fields but Seed are required.
type Config struct {
	Name        string // keys the initial values
	Dim         int    // weights per row, 1 to MaxDim
	Optimizer   optim.Optimizer
	Initializer Initializer
	Seed        uint64
}

// Row is a copy of one row.
type Row struct {
	ID      int64
	Values  []float32 // Dim weights
	Slots   []float32 // the optimizer's; may be empty in Restore: a fresh optimizer then
	UnixSec uint32    // time of the last Optimize or Assign
	Tag     uint64    // of the last Assign or Restore; Optimize keeps it
}

// Table is safe for concurrent use.
type Table struct {
	cfg   Config
	slots int    // per row
	key   uint64 // of (seed, name)

	// cut is held for reading by writers of rows and for writing by whoever needs to
	// see no call half done. It comes before any shard's lock.
	cut    sync.RWMutex
	shards [shardCount]shard
	size   atomic.Int64
	form   atomic.Uint64 // changes whenever a row is added or removed

	sortMu sync.Mutex // guards the two below
	sorted []int64    // every id, ascending, as of form == sortedAt; never changed in place
	sortAt uint64

	scratch sync.Pool // *summer
}

// New checks cfg and returns an empty table.
func New(cfg Config) (*Table, error) {
	switch {
	case cfg.Name == "":
		return nil, fmt.Errorf("table: no name: the name keys the initial values, give one")
	case cfg.Dim < 1 || cfg.Dim > MaxDim:
		return nil, fmt.Errorf("table %s: dim is %d: give 1 to %d", cfg.Name, cfg.Dim, MaxDim)
	case cfg.Optimizer == nil:
		return nil, fmt.Errorf("table %s: no optimizer: give one, SGD keeps no slots", cfg.Name)
	case cfg.Initializer == nil:
		return nil, fmt.Errorf("table %s: no initializer: give one, Zeros{} is the simplest", cfg.Name)
	}
	t := &Table{cfg: cfg, slots: cfg.Optimizer.SlotSize(cfg.Dim), key: tableKey(cfg.Seed, cfg.Name)}
	if t.slots < 0 {
		return nil, fmt.Errorf("table %s: the optimizer asks for %d slots: a size cannot be negative", cfg.Name, t.slots)
	}
	for i := range t.shards {
		t.shards[i] = shard{index: map[int64]uint32{}, stride: cfg.Dim + t.slots}
	}
	t.form.Store(1)
	t.scratch.New = func() any { return newSummer() }
	return t, nil
}

// Name is the name given to New.
func (t *Table) Name() string { return t.cfg.Name }

// Dim is the number of weights per row.
func (t *Table) Dim() int { return t.cfg.Dim }

// SlotSize is the number of optimizer slots per row.
func (t *Table) SlotSize() int { return t.slots }

// Len is the number of rows.
func (t *Table) Len() int { return int(t.size.Load()) }

// Lookup copies the weights of ids[i] to out[i*Dim:], zeros for a missing row, which
// is not inserted. out is len(ids)*Dim long. tags, unless nil, is len(ids) long and
// receives the rows' tags, 0 for a missing one. found counts the rows that exist, once
// per occurrence in ids. Each row is read at once; different rows may be read across
// somebody's call.
func (t *Table) Lookup(ids []int64, out []float32, tags []uint64) (found int, err error) {
	if len(out) != len(ids)*t.cfg.Dim {
		return 0, fmt.Errorf("table %s: lookup of %d ids needs room for %d floats, not %d: give len(ids)*dim", t.cfg.Name, len(ids), len(ids)*t.cfg.Dim, len(out))
	}
	if tags != nil && len(tags) != len(ids) {
		return 0, fmt.Errorf("table %s: lookup of %d ids got room for %d tags: give one per id, or nil", t.cfg.Name, len(ids), len(tags))
	}
	dim := t.cfg.Dim
	for i, id := range ids {
		dst := out[i*dim : (i+1)*dim]
		var tag uint64
		s := t.shardOf(id)
		s.mu.RLock()
		at, ok := s.index[id]
		if ok {
			copy(dst, s.floats(at))
			tag = s.meta(at).tag
		}
		s.mu.RUnlock()
		if ok {
			found++
		} else {
			clear(dst)
		}
		if tags != nil {
			tags[i] = tag
		}
	}
	return found, nil
}

// Optimize applies the gradient grads[i*Dim:(i+1)*Dim] to each ids[i]. Gradients of the
// same id are summed first, in the order given. A missing row is initialised first. An
// error (wrong length, a gradient that is NaN, infinite or beyond MaxGradient, NoID)
// leaves the table unchanged.
func (t *Table) Optimize(ids []int64, grads []float32, unixSec uint32) error {
	if err := t.checkBlock("optimize", ids, grads); err != nil {
		return err
	}
	sum := t.scratch.Get().(*summer)
	defer t.scratch.Put(sum)
	sum.add(ids, grads, t.cfg.Dim)
	for i, id := range sum.ids {
		for j, g := range sum.grads[i*t.cfg.Dim : (i+1)*t.cfg.Dim] {
			if !(g >= -MaxGradient && g <= MaxGradient) {
				return fmt.Errorf("table %s: gradient of id %d is %g at position %d: it must be finite and within ±%g; nothing was applied", t.cfg.Name, id, g, j, float32(MaxGradient))
			}
		}
	}
	t.cut.RLock()
	defer t.cut.RUnlock()
	for i, id := range sum.ids {
		t.with(id, func(w, slots []float32, m *meta, _ bool) {
			t.cfg.Optimizer.Update(w, slots, sum.grads[i*t.cfg.Dim:(i+1)*t.cfg.Dim], optim.Step{})
			m.unixSec = unixSec
		})
	}
	return nil
}

// Assign sets the weights of ids[i] to values[i*Dim:(i+1)*Dim] and their time and tag.
// Slots of an existing row stay, those of a new one are initialised. The last one of
// several equal ids wins. An error leaves the table unchanged.
func (t *Table) Assign(ids []int64, values []float32, unixSec uint32, tag uint64) error {
	if err := t.checkBlock("assign", ids, values); err != nil {
		return err
	}
	dim := t.cfg.Dim
	for i, id := range ids {
		if j := notFinite(values[i*dim : (i+1)*dim]); j >= 0 {
			return fmt.Errorf("table %s: value of id %d is %g at position %d: it must be finite; nothing was assigned", t.cfg.Name, id, values[i*dim+j], j)
		}
	}
	t.cut.RLock()
	defer t.cut.RUnlock()
	for i, id := range ids {
		t.with(id, func(w, _ []float32, m *meta, _ bool) {
			copy(w, values[i*dim:(i+1)*dim])
			m.unixSec, m.tag = unixSec, tag
		})
	}
	return nil
}

// Remove drops rows and returns how many of them existed.
func (t *Table) Remove(ids []int64) int {
	t.cut.RLock()
	defer t.cut.RUnlock()
	n := 0
	for _, id := range ids {
		s := t.shardOf(id)
		s.mu.Lock()
		ok := s.remove(id)
		if ok { // under the lock, so that size and form follow the shards
			t.size.Add(-1)
			t.form.Add(1)
		}
		s.mu.Unlock()
		if ok {
			n++
		}
	}
	return n
}

// Clear drops every row.
func (t *Table) Clear() {
	t.cut.Lock()
	defer t.cut.Unlock()
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.index, s.slabs, s.metas, s.free, s.used = map[int64]uint32{}, nil, nil, nil, 0
		s.mu.Unlock()
	}
	t.size.Store(0)
	t.form.Add(1)
}

// Restore sets whole rows, adding to what is there (Clear first where only rows are to
// remain). Empty Slots mean a fresh optimizer. The last one of several equal ids wins.
// An error leaves the table unchanged.
func (t *Table) Restore(rows []Row) error {
	for i := range rows {
		r := &rows[i]
		switch {
		case r.ID == NoID:
			return fmt.Errorf("table %s: id %d is reserved: rows with it cannot be kept", t.cfg.Name, r.ID)
		case len(r.Values) != t.cfg.Dim:
			return fmt.Errorf("table %s: id %d has %d values where dim is %d: was it saved by another model? nothing was restored", t.cfg.Name, r.ID, len(r.Values), t.cfg.Dim)
		case len(r.Slots) != 0 && len(r.Slots) != t.slots:
			return fmt.Errorf("table %s: id %d has %d slots where the optimizer keeps %d: was it saved with another optimizer? nothing was restored", t.cfg.Name, r.ID, len(r.Slots), t.slots)
		case notFinite(r.Values) >= 0 || notFinite(r.Slots) >= 0:
			return fmt.Errorf("table %s: id %d holds a NaN or an infinite number; nothing was restored", t.cfg.Name, r.ID)
		}
	}
	t.cut.RLock()
	defer t.cut.RUnlock()
	for i := range rows {
		r := &rows[i]
		t.with(r.ID, func(w, slots []float32, m *meta, fresh bool) {
			copy(w, r.Values)
			if len(r.Slots) > 0 {
				copy(slots, r.Slots)
			} else if !fresh {
				t.cfg.Optimizer.InitSlots(slots)
			}
			m.unixSec, m.tag = r.UnixSec, r.Tag
		})
	}
	return nil
}

// with runs f on the row of id under its lock, inserting and initialising it first
// where it is missing (fresh). The caller holds cut for reading.
func (t *Table) with(id int64, f func(w, slots []float32, m *meta, fresh bool)) {
	s := t.shardOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.index[id]
	if !ok {
		at = s.insert(id)
		t.size.Add(1)
		t.form.Add(1)
		row := s.floats(at)
		t.cfg.Initializer.Init(row[:t.cfg.Dim], keyOf(t.key, id))
		t.cfg.Optimizer.InitSlots(row[t.cfg.Dim:])
	}
	row := s.floats(at)
	f(row[:t.cfg.Dim:t.cfg.Dim], row[t.cfg.Dim:], s.meta(at), !ok)
}

func (t *Table) checkBlock(what string, ids []int64, block []float32) error {
	if len(block) != len(ids)*t.cfg.Dim {
		return fmt.Errorf("table %s: %s of %d ids needs %d floats, not %d: give len(ids)*dim", t.cfg.Name, what, len(ids), len(ids)*t.cfg.Dim, len(block))
	}
	for _, id := range ids {
		if id == NoID {
			return fmt.Errorf("table %s: %s of id %d, which is reserved; nothing was changed", t.cfg.Name, what, id)
		}
	}
	return nil
}

// notFinite is the position of the first NaN or infinite element, -1 without one.
func notFinite(x []float32) int {
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}
