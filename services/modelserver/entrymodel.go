package modelserver

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// entryModel computes scores. One goroutine writes params, any number read.
type entryModel struct {
	model    string
	version  int64
	rows     exportID    // whose rows its lookups name
	settled  atomic.Bool // every shard has them
	shards   int         // serving shards that hold the rows
	spec     *model.ModelSpec
	engine   *runtime.Engine
	features []feature // that requests give
	floats   []number
	inputs   []tfserving.Input
	rest     []tfserving.Input // inputs, and what may stand instead of them
	outputs  []string          // by task
	vars     []modelspec.Variable
	params   atomic.Pointer[runtime.Weights] // as of a MONOLITH_SYNC sequence

	scratches sync.Pool                    // of *scratch
	lanes     sync.Pool                    // of *runtime.Lane
	staged    map[uint32]map[int][]float32 // the writer's: chunks so far, by training shard
}

// newEntryModel checks an export against its own declaration.
func newEntryModel(name string, version int64, shards int, e *checkpoint.Entry) (*entryModel, error) {
	engine, err := runtime.New(e.Spec, shards, largestBatch)
	if err != nil {
		return nil, fmt.Errorf("the export's model spec: %w", err)
	}
	m := &entryModel{
		model: name, version: version, rows: exportID{version, e.Job}, shards: shards, spec: e.Spec,
		engine: engine, vars: engine.Variables(), staged: map[uint32]map[int][]float32{},
	}
	m.scratches.New = func() any { return &scratch{batch: engine.NewBatch(), shards: make([]shardScratch, shards)} }
	m.lanes.New = func() any { return engine.NewLane() }
	m.declare(e.Spec)
	tensors := make([][]float32, len(m.vars))
	for i, v := range m.vars {
		got, ok := e.Dense[v.Name]
		if !ok {
			return nil, fmt.Errorf("the export lacks the dense variable %s", v.Name)
		}
		if len(got.Values) != v.Size || !slices.Equal(got.Shape, v.Shape) {
			return nil, fmt.Errorf("dense variable %s is %v with %d values in the export, the spec says %v", v.Name, got.Shape, len(got.Values), v.Shape)
		}
		tensors[i] = got.Values
	}
	if err := m.publish(e.SyncSeq, tensors); err != nil {
		return nil, err
	}
	return m, nil
}

// publish lets Predicts stand on the variables as of a sequence.
func (m *entryModel) publish(seq uint64, tensors [][]float32) error {
	w, err := m.engine.Weights(seq, tensors)
	if err != nil {
		return err
	}
	m.params.Store(w)
	return nil
}

// apply stages the variables of a chunk; the last one swaps them in all together, so
// no Predict sees half of a delta. A delta that contradicts itself changes nothing.
func (m *entryModel) apply(d *delta.Delta, seq uint64) error {
	k := d.GetShard()
	if d.GetChunk() == 0 || m.staged[k] == nil {
		m.staged[k] = map[int][]float32{}
	}
	staged := m.staged[k]
	for _, v := range d.GetDense() {
		i := slices.IndexFunc(m.vars, func(w modelspec.Variable) bool { return w.Name == v.GetName() })
		if i < 0 {
			delete(m.staged, k)
			return fmt.Errorf("dense variable %q is not in the export that is served; export the model again", v.GetName())
		}
		if len(v.GetValues()) != 4*m.vars[i].Size || !slices.Equal(v.GetShape(), m.vars[i].Shape) {
			delete(m.staged, k)
			return fmt.Errorf("dense variable %s came as %v with %d bytes, the spec says %v", v.GetName(), v.GetShape(), len(v.GetValues()), m.vars[i].Shape)
		}
		values := appendFloats(make([]float32, 0, m.vars[i].Size), v.GetValues(), 4, 0)
		for _, x := range values {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				delete(m.staged, k)
				return fmt.Errorf("dense variable %s holds %v", v.GetName(), x)
			}
		}
		staged[i] = values
	}
	if d.GetChunk()+1 < d.GetChunks() {
		return nil
	}
	delete(m.staged, k)
	tensors := slices.Clone(m.params.Load().Values)
	for i, values := range staged {
		tensors[i] = values
	}
	return m.publish(seq, tensors)
}
