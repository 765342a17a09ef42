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

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// feature is one input of the model, resolved.
type feature struct {
	index int // in the spec
	name  string
	slot  uint32
	table string
}

// entryModel computes scores. One goroutine writes params, any number read.
type entryModel struct {
	model    string
	version  int64
	rows     exportID    // whose rows its lookups name
	settled  atomic.Bool // every shard has them
	shards   int         // serving shards that hold the rows
	spec     *model.ModelSpec
	engine   *runtime.Engine
	features []feature
	inputs   []tfserving.Input
	vars     []modelspec.Variable
	bands    map[place]int                   // their sizes
	params   atomic.Pointer[runtime.Weights] // as of a MONOLITH_SYNC sequence

	scratches sync.Pool                      // of *scratch
	lanes     sync.Pool                      // of *runtime.Lane
	staged    map[uint32]map[place][]float32 // the writer's: chunks so far, by training shard
}

// place is where a band of a dense variable belongs.
type place struct{ variable, at int }

// newEntryModel checks an export against its own declaration.
func newEntryModel(name string, version int64, shards int, e *checkpoint.Entry) (*entryModel, error) {
	engine, err := runtime.New(e.Spec, shards, largestBatch)
	if err != nil {
		return nil, fmt.Errorf("the export's model spec: %w", err)
	}
	m := &entryModel{
		model: name, version: version, rows: exportID{version, e.Job}, shards: shards, spec: e.Spec,
		engine: engine, vars: engine.Variables(), staged: map[uint32]map[place][]float32{},
		bands: map[place]int{},
	}
	m.scratches.New = func() any { return &scratch{batch: engine.NewBatch(), shards: make([]shardScratch, shards)} }
	m.lanes.New = func() any { return engine.NewLane() }
	for _, b := range modelspec.Bands(m.vars) {
		m.bands[place{b.Variable, b.At}] = b.Size
	}
	for i, f := range e.Spec.GetFeatures() {
		if len(f.GetCross()) > 0 {
			continue // it follows from others
		}
		m.features = append(m.features, feature{index: i, name: f.GetName(), slot: f.GetSlot(), table: f.GetTable()})
		m.inputs = append(m.inputs, tfserving.Input{Name: f.GetName(), Dtype: types_go_proto.DataType_DT_INT64})
	}
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
		m.staged[k] = map[place][]float32{}
	}
	staged := m.staged[k]
	for _, v := range d.GetDense() {
		at, values, err := m.band(v)
		if err != nil {
			delete(m.staged, k)
			return err
		}
		staged[at] = values
	}
	if d.GetChunk()+1 < d.GetChunks() {
		return nil
	}
	delete(m.staged, k)
	now := m.params.Load().Values
	tensors := slices.Clone(now)
	for at, values := range staged {
		if len(values) == len(now[at.variable]) {
			tensors[at.variable] = values
			continue
		}
		if &tensors[at.variable][0] == &now[at.variable][0] {
			tensors[at.variable] = slices.Clone(now[at.variable])
		}
		copy(tensors[at.variable][at.at:], values)
	}
	return m.publish(seq, tensors)
}

// band decodes a dense variable of a delta, or a band of one, and says where it belongs.
func (m *entryModel) band(v *delta.Variable) (at place, values []float32, err error) {
	i := slices.IndexFunc(m.vars, func(w modelspec.Variable) bool { return w.Name == v.GetName() })
	if i < 0 {
		return at, nil, fmt.Errorf("dense variable %q is not in the export that is served; export the model again", v.GetName())
	}
	at = place{i, int(v.GetAt())}
	size, ok := m.bands[at]
	if !ok || len(v.GetValues()) != 4*size || !slices.Equal(v.GetShape(), m.vars[i].Shape) {
		return at, nil, fmt.Errorf("dense variable %s came as %v with %d bytes at %d, the spec says %v with %d there", v.GetName(), v.GetShape(), len(v.GetValues()), v.GetAt(), m.vars[i].Shape, 4*size)
	}
	values = appendFloats(make([]float32, 0, size), v.GetValues(), 4, 0)
	for _, x := range values {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return at, nil, fmt.Errorf("dense variable %s holds %v", v.GetName(), x)
		}
	}
	return at, values, nil
}
