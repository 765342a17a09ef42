package state

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/filter"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
)

// ErrOtherModel is a checkpoint of a model that was declared otherwise.
var ErrOtherModel = errors.New("the checkpoint is of another declaration: was the model declared anew under the same job?")

// untrained are the shard's bands as they are at first.
func (s *Shard) untrained() map[bandID]*variable {
	dense := map[bandID]*variable{}
	for _, v := range s.variables {
		var first []float32 // drawn as a whole, so that it does not depend on the bands
		for id, b := range s.bands {
			if b.Name != v.Name {
				continue
			}
			if first == nil {
				first = modelspec.InitVariable(s.spec, v)
			}
			o := s.optimizers[v.Name]
			slots := make([]float32, o.SlotSize(b.Size))
			o.InitSlots(slots)
			dense[id] = &variable{values: slices.Clone(first[b.At : b.At+b.Size]), slots: slots}
		}
	}
	return dense
}

// contents is what a checkpoint replaces.
type contents struct {
	tables  map[string]*table.Table
	filters map[string]*admission
	clocks  map[string]*expiry
	dense   map[bandID]*variable
	parts   map[int32]*partition
}

// empty has tables without rows, and the variables of the untrained model.
func (s *Shard) empty() (*contents, error) {
	c := &contents{tables: map[string]*table.Table{}, filters: map[string]*admission{}, clocks: map[string]*expiry{}, parts: map[int32]*partition{}}
	for name, kind := range s.kinds {
		cfg, err := modelspec.TableConfig(s.spec, name, false)
		if err != nil {
			return nil, err
		}
		if f, ok := cfg.Admitter.(filter.Filter); ok {
			c.filters[name] = &admission{Filter: f}
			cfg.Admitter = c.filters[name]
		}
		cfg.Track = true
		if c.tables[name], err = table.New(cfg); err != nil {
			return nil, err
		}
		if kind.expires {
			c.clocks[name] = new(expiry)
		}
	}
	c.dense = s.untrained()
	return c, nil
}

// fill puts what was saved into c, whose tables have no rows yet.
func (s *Shard) fill(c *contents, saved *checkpoint.Shard) error {
	m := &saved.Manifest
	for _, info := range m.Tables {
		if kind, ok := s.kinds[info.Name]; ok && info.Opt != nil && !reflect.DeepEqual(info.Opt, kind.dumps) {
			return fmt.Errorf("%w: its table %q was saved by %v, model %q declares %v", ErrOtherModel, info.Name, checkpoint.Kinds(info.Opt), s.spec.GetName(), checkpoint.Kinds(kind.dumps))
		}
	}
	for name, rows := range saved.Tables {
		t := c.tables[name]
		if t == nil {
			return fmt.Errorf("%w: it holds table %q, which model %q does not declare", ErrOtherModel, name, s.spec.GetName())
		}
		if err := t.Restore(rows); err != nil {
			return err
		}
	}
	for name, f := range c.filters {
		// A checkpoint from before the filter was declared has no state of it.
		if state, ok := saved.Filters[name]; ok {
			if err := f.UnmarshalBinary(state); err != nil {
				return fmt.Errorf("admission filter of table %q: %w", name, err)
			}
		}
	}
	for _, info := range m.Tables {
		if e := c.clocks[info.Name]; e != nil {
			if e.clock = info.Clock; m.Format == 1 { // which knew no clocks, and no assignments
				e.clock = c.tables[info.Name].Newest()
			}
		}
	}
	for p, next := range m.Offsets {
		c.parts[p] = &partition{next: next}
	}
	return c.fillDense(saved)
}

// fillDense takes the variables over.
func (c *contents) fillDense(from *checkpoint.Shard) error {
	for id, v := range c.dense {
		saved, ok := from.Band(id.name, id.at)
		if !ok || len(saved.Values) != len(v.values) || len(saved.Slots) != len(v.slots) {
			return fmt.Errorf("%w: it has no variable %q of %d values and %d slots at %d", ErrOtherModel, id.name, len(v.values), len(v.slots), id.at)
		}
		if most := max(vec.MaxAbs(saved.Values), vec.MaxAbs(saved.Slots)); !(most <= math.MaxFloat32) {
			return fmt.Errorf("variable %q holds a NaN or an infinite number", id.name)
		}
		v.values, v.slots = saved.Values, saved.Slots
	}
	return nil
}

// Load replaces everything by a checkpoint, or by the untrained model where saved is nil.
// Dense variables count as touched, because a lost timeline may have published others.
func (s *Shard) Load(saved *checkpoint.Shard) error {
	c, err := s.empty()
	if err != nil {
		return err
	}
	var m checkpoint.Manifest
	if saved != nil {
		m = saved.Manifest
		if err := s.fill(c, saved); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables, s.filters, s.expiry, s.dense, s.parts = c.tables, c.filters, c.clocks, c.dense, c.parts
	s.step, s.turn, s.checkpoint = m.Step, m.Turn, m.Checkpoint
	s.reached(int64(m.Step) - 1) // the newest apply's
	s.gone = map[string]map[int64]struct{}{}
	s.staged.drop()
	s.denseTouched = len(s.dense) > 0
	s.ranges, s.learnt, s.applies, s.trace = nil, nil, 0, ""
	s.waiting = map[string]*waiting{}
	for name, kind := range s.kinds {
		if kind.interval > 0 || kind.tolerance != nil {
			s.waiting[name] = newWaiting(kind)
		}
	}
	s.assigned = requests{}
	for _, id := range m.Assigned {
		s.assigned.add(id)
	}
	s.tell()
	return nil
}

// copyAll copies everything, as a checkpoint has it. The caller holds mu, for reading
// at least.
func (s *Shard) copyAll() *checkpoint.Shard {
	c := &checkpoint.Shard{
		Manifest: checkpoint.Manifest{
			Job: s.job, Shard: s.shard, Shards: s.shards, Epoch: s.epoch, Step: s.step,
			Turn: s.turn, Generation: s.generation, Offsets: s.offsets(), Assigned: slices.Clone(s.assigned.order),
		},
		Tables: map[string][]table.Row{}, Dense: map[string]checkpoint.Variable{}, Filters: map[string][]byte{}, Spec: s.spec,
	}
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		t := s.tables[name]
		info := checkpoint.TableInfo{Name: name, Dim: t.Dim(), Slots: t.SlotSize(), Opt: s.kinds[name].dumps}
		if e := s.expiry[name]; e != nil {
			info.Clock = e.clock
		}
		c.Manifest.Tables = append(c.Manifest.Tables, info)
		c.Tables[name] = t.Snapshot()
	}
	for name, f := range s.filters {
		state, err := f.MarshalBinary()
		if err != nil {
			panic("ps: an admission filter cannot write its state: " + err.Error())
		}
		c.Filters[name] = state
	}
	for _, id := range s.bandIDs {
		b, v := s.bands[id], s.dense[id]
		saved := checkpoint.Variable{Shape: b.Shape, Values: slices.Clone(v.values), Slots: slices.Clone(v.slots)}
		if b.Size == s.variables[b.Variable].Size {
			c.Dense[b.Name] = saved
		} else {
			c.Bands = append(c.Bands, checkpoint.Band{Name: b.Name, At: b.At, Variable: saved})
		}
	}
	return c
}
