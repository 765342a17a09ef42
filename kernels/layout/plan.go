package layout

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// Plan is a checked and ordered [Config]. It is immutable but for pools of workspaces.
type Plan struct {
	shards   int
	limits   Limits
	mod      modulus
	features []feature // by name
	tables   []table   // by name
	outputs  []output  // by name
	tensors  []tensor
	cells    int            // floats of one cell of every use
	index    map[string]int // feature by name
	bySlot   map[uint32][]int
	seed     [2]uint64 // of the hash that finds duplicates; results do not depend on it
	dedups   sync.Pool // *dedup
	works    sync.Pool // *work
}

type feature struct {
	Feature
	width int
	table int
	nth   int   // position among the features of its table
	uses  []use // in the order of outputs and slices
}

type table struct {
	name     string
	features []int // in order of name
	width    int   // of a row, or 0 when features differ
	parts    int   // where version 2 starts to number the table's parts
}

type output struct {
	name string
	typ  OutType
	uses []use
	size int // floats of one sample, all tensors together
}

// use is one slice of one output: which columns of which feature go where.
type use struct {
	feature    int
	start, end int
	tensor     int
	at         int  // offset in a sample's floats
	step       int  // from one position of FirstN to the next
	positions  int  // of FirstN; 1 otherwise
	cell       int  // where its pooled value is kept if all samples share it
	first      bool // first slice of its output
}

type tensor struct {
	output int
	shape  []int // [0] is -1 or the batch size
	sample int   // floats of one sample
}

// Compile checks cfg and orders it. Errors name the feature or output that is wrong.
func Compile(cfg Config) (*Plan, error) {
	if cfg.Shards < 1 || cfg.Shards > maxShards {
		return nil, fmt.Errorf("layout: %d shards: there must be 1 to %d", cfg.Shards, maxShards)
	}
	if len(cfg.Features) == 0 {
		return nil, fmt.Errorf("layout: no feature is configured")
	}
	limits, err := cfg.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Plan{
		shards: cfg.Shards,
		limits: limits,
		mod:    newModulus(uint64(cfg.Shards)),
		index:  make(map[string]int, len(cfg.Features)),
		bySlot: map[uint32][]int{},
		seed:   [2]uint64{rand.Uint64(), rand.Uint64() | 1},
	}
	if err := p.addFeatures(cfg.Features); err != nil {
		return nil, err
	}
	p.addTables()
	outs := slices.Clone(cfg.Outputs)
	slices.SortFunc(outs, func(a, b Output) int { return cmp.Compare(a.Name, b.Name) })
	for i, o := range outs {
		if i > 0 && outs[i-1].Name == o.Name {
			return nil, fmt.Errorf("layout: output %q is configured twice", o.Name)
		}
		if err := p.addOutput(o); err != nil {
			return nil, fmt.Errorf("layout: output %q: %w", o.Name, err)
		}
	}
	return p, nil
}

func (p *Plan) addFeatures(features []Feature) error {
	for _, f := range features {
		width := 0
		for _, d := range f.SliceDims {
			if d < 1 || d > maxWidth {
				return fmt.Errorf("layout: feature %q: slice_dims %v must each be 1 to %d", f.Name, f.SliceDims, maxWidth)
			}
			if width += d; width > maxWidth {
				return fmt.Errorf("layout: feature %q: a row may have %d floats at most", f.Name, maxWidth)
			}
		}
		switch {
		case f.Name == "" || f.Table == "":
			return fmt.Errorf("layout: feature %q of table %q: both must be named", f.Name, f.Table)
		case width == 0:
			return fmt.Errorf("layout: feature %q has no slice_dims", f.Name)
		case f.Pooling != Sum && f.Pooling != Mean && f.Pooling != FirstN:
			return fmt.Errorf("layout: feature %q: %v is no pooling; SUM is 0, MEAN 1, FIRSTN 3", f.Name, f.Pooling)
		case f.Pooling == FirstN && (f.MaxSequenceLength < 1 || f.MaxSequenceLength > maxSample):
			return fmt.Errorf("layout: feature %q: FIRSTN needs a max_sequence_length of at least 1, not %d", f.Name, f.MaxSequenceLength)
		}
		f.SliceDims = slices.Clone(f.SliceDims)
		p.features = append(p.features, feature{Feature: f, width: width})
	}
	slices.SortFunc(p.features, func(a, b feature) int { return cmp.Compare(a.Name, b.Name) })
	for i, f := range p.features {
		if _, twice := p.index[f.Name]; twice {
			return fmt.Errorf("layout: feature %q is configured twice", f.Name)
		}
		p.index[f.Name] = i
		if slot, ok := slotOfName(f.Name); ok {
			p.bySlot[slot] = append(p.bySlot[slot], i)
		}
	}
	return nil
}

func (p *Plan) addTables() {
	byName := map[string][]int{}
	for i, f := range p.features {
		byName[f.Table] = append(byName[f.Table], i)
	}
	for name, features := range byName {
		p.tables = append(p.tables, table{name: name, features: features})
	}
	slices.SortFunc(p.tables, func(a, b table) int { return cmp.Compare(a.name, b.name) })
	parts := 0
	for i := range p.tables {
		t := &p.tables[i]
		t.parts = parts
		parts += len(t.features) * p.shards
		t.width = p.features[t.features[0]].width
		for nth, f := range t.features {
			p.features[f].table, p.features[f].nth = i, nth
			if p.features[f].width != t.width {
				t.width = 0
			}
		}
	}
}

func (p *Plan) addOutput(o Output) error {
	if len(o.Slices) == 0 {
		return fmt.Errorf("it has no slices")
	}
	uses, same, err := p.usesOf(o)
	if err != nil {
		return err
	}
	n, firstN, err := p.positions(uses)
	if o.Type != None && err != nil {
		return err
	}
	if (o.Type == Stack || o.Type == AddN) && !same {
		return fmt.Errorf("%v needs slices of equal width", o.Type)
	}
	shapes, err := p.arrange(o, uses, n, firstN)
	if err != nil {
		return err
	}
	size, err := p.addTensors(o, shapes)
	if err != nil {
		return err
	}
	for i := range uses {
		u := &uses[i]
		u.cell = p.cells
		p.cells += u.positions * (u.end - u.start)
		p.features[u.feature].uses = append(p.features[u.feature].uses, *u)
	}
	p.outputs = append(p.outputs, output{name: o.Name, typ: o.Type, uses: uses, size: size})
	return nil
}

// usesOf reads the slices of o, and says whether all are equally wide.
func (p *Plan) usesOf(o Output) (uses []use, same bool, err error) {
	uses, same = make([]use, len(o.Slices)), true
	for i, s := range o.Slices {
		f, ok := p.index[s.Feature]
		if !ok {
			return nil, false, fmt.Errorf("slice %d: feature %q is not configured", i, s.Feature)
		}
		if s.Start < 0 || s.End <= s.Start || s.End > p.features[f].width {
			return nil, false, fmt.Errorf("slice %d: columns %d to %d are not within the %d of feature %q", i, s.Start, s.End, p.features[f].width, s.Feature)
		}
		uses[i] = use{feature: f, start: s.Start, end: s.End, positions: 1, first: i == 0}
		if p.features[f].Pooling == FirstN {
			uses[i].positions = p.features[f].MaxSequenceLength
		}
		same = same && s.End-s.Start == uses[0].end-uses[0].start
	}
	return uses, same, nil
}

// arrange says where the uses of o lie in its tensors, and returns the shapes of these. Each use
// has n positions where firstN is true.
func (p *Plan) arrange(o Output, uses []use, n int, firstN bool) (want [][]int, err error) {
	width, sum, base := uses[0].end-uses[0].start, 0, len(p.tensors)
	for i := range uses {
		uses[i].tensor = base
		sum += uses[i].end - uses[i].start
	}
	switch o.Type {
	case None:
		for i := range uses {
			u := &uses[i]
			u.tensor, u.step = base+i, u.end-u.start
			shape := []int{-1, u.step}
			if p.features[u.feature].Pooling == FirstN {
				shape = []int{-1, u.positions, u.step}
			}
			want = append(want, shape)
		}
	case Concat:
		at := 0
		for i := range uses {
			uses[i].at, uses[i].step = at, sum
			at += uses[i].end - uses[i].start
		}
		want = [][]int{{-1, sum}}
		if firstN {
			want = [][]int{{-1, n, sum}}
		}
	case Stack:
		for i := range uses {
			uses[i].at, uses[i].step = i*n*width, width
		}
		want = [][]int{{-1, len(uses), width}}
		if firstN {
			want = [][]int{{-1, len(uses), n, width}}
		}
	case AddN:
		if firstN {
			return nil, fmt.Errorf("ADDN cannot add FIRSTN slices; pool them with SUM or MEAN")
		}
		want = [][]int{{-1, width}}
	default:
		return nil, fmt.Errorf("%v is no out_type; CONCAT is 0, STACK 1, ADDN 2, NONE 3", o.Type)
	}
	return want, nil
}

// addTensors appends the tensors of o, in the shapes that it asks for if it does, and returns
// how many floats a sample has in all.
func (p *Plan) addTensors(o Output, want [][]int) (size int, err error) {
	shapes := want
	if o.Shapes != nil {
		shapes = o.Shapes
	}
	if len(shapes) != len(want) {
		return 0, fmt.Errorf("%d shapes are given for %d tensors", len(shapes), len(want))
	}
	for i, shape := range shapes {
		sample := product(want[i][1:])
		if sample < 0 {
			return 0, fmt.Errorf("tensor %d: shape %v is beyond %d floats a sample", i, want[i], maxSample)
		}
		if len(shape) == 0 || shape[0] != -1 && shape[0] < 1 || product(shape[1:]) != sample {
			return 0, fmt.Errorf("tensor %d: shape %v does not hold samples of %v: the first dimension is -1 or the batch size, the others multiply to %d", i, shape, want[i], sample)
		}
		size += sample
		p.tensors = append(p.tensors, tensor{output: len(p.outputs), shape: slices.Clone(shape), sample: sample})
	}
	return size, nil
}

// positions returns how many positions each sample has (1 without FirstN), and an error
// where slices disagree, which only None can bear.
func (p *Plan) positions(uses []use) (n int, firstN bool, err error) {
	for i, u := range uses {
		f := p.features[u.feature]
		is := f.Pooling == FirstN
		if i > 0 && (is != firstN || u.positions != n) {
			return 1, false, fmt.Errorf("slice %d (%v of feature %q) has %d positions and slice 0 has %d: FIRSTN slices go together only with FIRSTN slices of the same max_sequence_length", i, f.Pooling, f.Name, u.positions, n)
		}
		n, firstN = u.positions, is
	}
	return n, firstN, nil
}

// product multiplies dimensions; -1 stands for one below 1 or for too many floats.
func product(dims []int) int {
	n := 1
	for _, d := range dims {
		if d < 1 || d > maxSample || n > maxSample/d {
			return -1
		}
		n *= d
	}
	return n
}

// slotOfName returns N of a feature called fc_slot_N or slot_N.
func slotOfName(name string) (uint32, bool) {
	const long, short = "fc_slot_", "slot_"
	switch {
	case len(name) > len(long) && name[:len(long)] == long:
		name = name[len(long):]
	case len(name) > len(short) && name[:len(short)] == short:
		name = name[len(short):]
	default:
		return 0, false
	}
	var n uint32
	for i := range len(name) {
		if name[i] < '0' || name[i] > '9' || n > MaxSlotV1 {
			return 0, false
		}
		n = n*10 + uint32(name[i]-'0')
	}
	return n, n <= MaxSlotV1
}

// Shards is the number of shards, ps_num.
func (p *Plan) Shards() int { return p.shards }

// Tables lists the tables in their order.
func (p *Plan) Tables() []string {
	names := make([]string, len(p.tables))
	for i, t := range p.tables {
		names[i] = t.name
	}
	return names
}

// Features lists the features in their order, which is that of NFLOffset.
func (p *Plan) Features() []string {
	names := make([]string, len(p.features))
	for i, f := range p.features {
		names[i] = f.Name
	}
	return names
}

// Feature returns the position of a feature in that order.
func (p *Plan) Feature(name string) (int, bool) {
	i, ok := p.index[name]
	return i, ok
}

// Slots lists the features called fc_slot_N or slot_N for one slot N, which take the
// version 1 ids of an Instance.
func (p *Plan) Slots(slot uint32) []int { return p.bySlot[slot] }

// Blocks is tables × shards: the number of id lists and row buffers.
func (p *Plan) Blocks() int { return len(p.tables) * p.shards }

// Tensors returns, for a batch of that size, the output each tensor belongs to and its
// shape, in the order of [Plan.Forward].
func (p *Plan) Tensors(batch int) (outputs []string, shapes [][]int) {
	for _, t := range p.tensors {
		shape := slices.Clone(t.shape)
		shape[0] = batch
		outputs, shapes = append(outputs, p.outputs[t.output].name), append(shapes, shape)
	}
	return outputs, shapes
}

// grow returns s with length n, its contents undefined.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
