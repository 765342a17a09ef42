package ps

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/filter"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
)

// schema is what the spec says about this shard; it never changes.
type schema struct {
	spec          *model.ModelSpec
	job           string
	shard, shards uint32
	deterministic bool
	dims          map[string]int             // table -> dim
	kinds         map[string]tableKind       // table -> what is declared of it
	variables     []modelspec.Variable       // of the model
	bands         map[bandID]modelspec.Band  // of the dense variables, this shard's
	bandIDs       []bandID                   // theirs, sorted
	optimizers    map[string]optim.Optimizer // of the dense variables
	densePause    time.Duration              // between two publications of dense variables
	clockStep     uint32                     // seconds that one apply may move a table's clock by
}

func newSchema(cfg Config, spec *model.ModelSpec) (*schema, error) {
	if err := modelspec.Trainable(spec); err != nil {
		return nil, fmt.Errorf("model %q: %w", spec.GetName(), err)
	}
	variables := modelspec.Variables(spec)
	if err := modelspec.Spread(variables, cfg.Shards); err != nil {
		return nil, fmt.Errorf("model %q: %w", spec.GetName(), err)
	}
	f := &schema{
		spec: spec, job: cfg.Job, shard: uint32(cfg.Shard), shards: uint32(cfg.Shards), deterministic: cfg.Deterministic,
		dims: map[string]int{}, kinds: map[string]tableKind{}, bands: map[bandID]modelspec.Band{}, variables: variables, optimizers: map[string]optim.Optimizer{},
		clockStep: uint32(cfg.withDefaults().ClockStep / time.Second),
	}
	for _, t := range spec.GetTables() {
		f.dims[t.GetName()] = int(t.GetDim())
		kind, err := newTableKind(spec, t)
		if err != nil {
			return nil, err
		}
		f.kinds[t.GetName()] = kind
	}
	bytes := 0.0
	for _, v := range variables {
		bytes += 4 * float64(v.Size)
		f.optimizers[v.Name] = modelspec.VariableOptimizer(spec, v.Name)
	}
	f.densePause = time.Duration(bytes / float64(cfg.withDefaults().DenseRate) * float64(time.Second))
	for _, b := range modelspec.BandsOf(variables, cfg.Shard, cfg.Shards) {
		f.bands[bandID{b.Name, b.At}] = b
	}
	f.bandIDs = slices.SortedFunc(maps.Keys(f.bands), bandID.compare)
	return f, nil
}

// bandID names a band of a dense variable, by where it begins.
type bandID struct {
	name string
	at   int
}

func (b bandID) compare(o bandID) int {
	return cmp.Or(cmp.Compare(b.name, o.name), cmp.Compare(b.at, o.at))
}

// bandIDOf is what a message calls a band.
func bandIDOf(name string, at uint32) bandID { return bandID{name, int(at)} }

// variable is a dense variable, or a band of one, with its optimizer's slots.
type variable struct{ values, slots []float32 }

// partition is how far one Kafka partition has been learnt.
type partition struct {
	epoch uint64 // highest lease epoch that asked; 0 after a restore
	next  int64
}

// state is everything the shard knows. mu makes an apply atomic: rows, variables,
// offsets, listed rows and pending ranges change together or not at all.
type state struct {
	*schema

	mu      sync.RWMutex
	changed chan struct{}  // closed, and replaced, whenever somebody who waits should look again
	refuse  *rowwire.Error // why the shard does not answer now; nil: it does

	epoch      uint64
	step       uint64
	turn       uint64
	generation uint64
	checkpoint int64

	tables  map[string]*table.Table
	filters map[string]*admission // of the tables that have one
	expiry  map[string]*expiry    // of the tables whose rows expire
	dense   map[bandID]*variable
	parts   map[int32]*partition
	staged  staging

	// Rows to publish are listed by their tables. gone has for each table the ids without
	// a row that followers may have one of.
	gone         map[string]map[int64]struct{}
	denseTouched bool
	ranges       []*delta.Range // to publish
	applies      int            // since the last dirtyRows
	trace        string         // of a sampled apply among them
	assigned     requests       // the latest; the checkpoint has them too

	cuts cuts
}

func newState(f *schema) *state {
	return &state{
		schema: f, changed: make(chan struct{}),
		refuse: rowwire.Errorf(rowwire.Unavailable, "shard %d of job %q is starting; try again", f.shard, f.job),
	}
}

// tell wakes everybody who waits for a change. The caller holds mu.
func (s *state) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// suspend refuses everything from now on and ends the cut in progress.
func (s *state) suspend(why *rowwire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = why
	s.staged.drop()
	s.cuts.end("the shard stopped answering: " + why.Message)
	s.tell()
}

// resume answers again, as the writer of epoch.
func (s *state) resume(epoch, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.epoch, s.generation = nil, epoch, generation
	s.tell()
}

// errOtherModel is a checkpoint of a model that was declared otherwise.
var errOtherModel = errors.New("the checkpoint is of another declaration: was the model declared anew under the same job?")

// untrained are the shard's bands as they are at first.
func (s *state) untrained() map[bandID]*variable {
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

// load replaces everything by a checkpoint, or by the untrained model where c is nil.
// Dense variables count as touched, because a lost timeline may have published others.
func (s *state) load(c *checkpoint.Shard) error {
	tables, filters := map[string]*table.Table{}, map[string]*admission{}
	clocks := map[string]*expiry{}
	for name, kind := range s.kinds {
		cfg, err := modelspec.TableConfig(s.spec, name, false)
		if err != nil {
			return err
		}
		if f, ok := cfg.Admitter.(filter.Filter); ok {
			filters[name] = &admission{Filter: f}
			cfg.Admitter = filters[name]
		}
		cfg.Track = true
		if tables[name], err = table.New(cfg); err != nil {
			return err
		}
		if kind.expires {
			clocks[name] = new(expiry)
		}
	}
	dense := s.untrained()
	parts := map[int32]*partition{}
	var m checkpoint.Manifest
	if c != nil {
		m = c.Manifest
		for _, info := range m.Tables {
			if kind, ok := s.kinds[info.Name]; ok && info.Opt != nil && !reflect.DeepEqual(info.Opt, kind.dumps) {
				return fmt.Errorf("%w: its table %q was saved by %v, model %q declares %v", errOtherModel, info.Name, checkpoint.Kinds(info.Opt), s.spec.GetName(), checkpoint.Kinds(kind.dumps))
			}
		}
		for name, rows := range c.Tables {
			t := tables[name]
			if t == nil {
				return fmt.Errorf("%w: it holds table %q, which model %q does not declare", errOtherModel, name, s.spec.GetName())
			}
			if err := t.Restore(rows); err != nil {
				return err
			}
		}
		for name, f := range filters {
			// A checkpoint from before the filter was declared has no state of it.
			if state, ok := c.Filters[name]; ok {
				if err := f.UnmarshalBinary(state); err != nil {
					return fmt.Errorf("admission filter of table %q: %w", name, err)
				}
			}
		}
		for _, info := range m.Tables {
			if e := clocks[info.Name]; e != nil {
				if e.clock = info.Clock; m.Format == 1 { // which knew no clocks, and no assignments
					e.clock = tables[info.Name].Newest()
				}
			}
		}
		for id, v := range dense {
			saved, ok := c.Band(id.name, id.at)
			if !ok || len(saved.Values) != len(v.values) || len(saved.Slots) != len(v.slots) {
				return fmt.Errorf("%w: it has no variable %q of %d values and %d slots at %d", errOtherModel, id.name, len(v.values), len(v.slots), id.at)
			}
			if most := max(vec.MaxAbs(saved.Values), vec.MaxAbs(saved.Slots)); !(most <= math.MaxFloat32) {
				return fmt.Errorf("variable %q holds a NaN or an infinite number", id.name)
			}
			v.values, v.slots = saved.Values, saved.Slots
		}
		for p, next := range m.Offsets {
			parts[p] = &partition{next: next}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables, s.filters, s.expiry, s.dense, s.parts = tables, filters, clocks, dense, parts
	s.step, s.turn, s.checkpoint = m.Step, m.Turn, m.Checkpoint
	s.reached(int64(m.Step) - 1) // the newest apply's
	s.gone = map[string]map[int64]struct{}{}
	s.staged.drop()
	s.denseTouched = len(dense) > 0
	s.ranges, s.applies, s.trace = nil, 0, ""
	s.assigned = requests{}
	for _, id := range m.Assigned {
		s.assigned.add(id)
	}
	s.tell()
	return nil
}

// miss has followers drop the rows of ids that have none here when the next publication is
// made. The caller holds mu.
func (s *state) miss(table string, ids []int64) {
	if len(ids) == 0 {
		return
	}
	m := s.gone[table]
	if m == nil {
		m = make(map[int64]struct{}, len(ids))
		s.gone[table] = m
	}
	for _, id := range ids {
		m[id] = struct{}{}
	}
}

// retouch marks what deltas of a lost timeline held; unknown tables are passed over.
func (s *state) retouch(d *delta.Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range d.GetRows() {
		t := s.tables[r.GetTable()]
		if t == nil {
			continue
		}
		for _, told := range [][]uint64{r.GetIds(), r.GetRemoved()} {
			ids := make([]int64, len(told))
			for i, id := range told {
				ids[i] = int64(id)
			}
			s.miss(r.GetTable(), t.Touch(ids))
		}
	}
}

// touchAll marks every row.
func (s *state) touchAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.TouchAll()
	}
}

// backlog counts the ids that wait to be published.
func (s *state) backlog() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.unpublished()
}

// unpublished is backlog for who holds mu, for reading at least.
func (s *state) unpublished() (n int) {
	for name, t := range s.tables {
		n += t.Touched() + len(s.gone[name])
	}
	return n
}

// stepNow counts the applies so far.
func (s *state) stepNow() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.step
}

// rows counts the rows of each table.
func (s *state) rows() map[string]uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := map[string]uint64{}
	for name, t := range s.tables {
		n[name] = uint64(t.Len())
	}
	return n
}

// standing is where the shard stands. The caller holds mu, for reading at least.
func (s *state) standing() shardcmd.State {
	st := shardcmd.State{
		Epoch: s.epoch, Step: s.step, Turn: s.turn, Generation: s.generation, Checkpoint: s.checkpoint,
		Next: s.offsets(),
	}
	if s.cuts.now != nil {
		st.Held = s.cuts.now.id
	}
	return st
}

func (s *state) offsets() map[int32]int64 {
	next := make(map[int32]int64, len(s.parts))
	for p, v := range s.parts {
		if v.next > 0 { // else it only keeps an epoch
			next[p] = v.next
		}
	}
	return next
}

// copyAll copies everything, as a checkpoint has it. The caller holds mu, for reading
// at least.
func (s *state) copyAll() *checkpoint.Shard {
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
