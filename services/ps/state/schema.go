package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/optim"
)

// Config says which shard of which job a [Shard] is.
type Config struct {
	Job           string
	Shard, Shards int
	// Deterministic makes it learn and answer turn by turn.
	Deterministic bool
	// ClockStep bounds how far one apply moves the record time by which rows expire: whole
	// seconds.
	ClockStep time.Duration
}

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
		clockStep: uint32(cfg.ClockStep / time.Second),
	}
	for _, t := range spec.GetTables() {
		f.dims[t.GetName()] = int(t.GetDim())
		kind, err := newTableKind(spec, t)
		if err != nil {
			return nil, err
		}
		f.kinds[t.GetName()] = kind
	}
	for _, v := range variables {
		f.optimizers[v.Name] = modelspec.VariableOptimizer(spec, v.Name)
	}
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

// Dim is the dimension of a table's rows, or the refusal of a table that there is not.
func (f *schema) Dim(table string) (int, error) {
	dim, ok := f.dims[table]
	if !ok {
		return 0, rowwire.Errorf(rowwire.NotFound, "model %q has no table %q", f.spec.GetName(), table)
	}
	return dim, nil
}
