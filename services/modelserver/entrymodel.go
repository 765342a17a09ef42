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
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/kernels/dense"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// feature is one input of the model, resolved.
type feature struct {
	name   string
	slot   uint32
	table  int // index into entryModel.tables
	offset int // of its embedding in the tower's input
}

type embedding struct {
	name string
	dim  int
}

// params are the dense variables after one delta; never changed once published. The first
// Predict that stands on them packs them, and those behind it compute with that.
type params struct {
	seq     uint64 // MONOLITH_SYNC sequence they are as of
	tensors [][]float32
	frozen  func() (*dense.Frozen, error)
}

func (m *entryModel) publish(seq uint64, tensors [][]float32) {
	m.params.Store(&params{seq: seq, tensors: tensors, frozen: sync.OnceValues(func() (*dense.Frozen, error) {
		return m.tower.Freeze(tensors, false, nil)
	})})
}

// entryModel computes scores. One goroutine writes params, any number read.
type entryModel struct {
	model    string
	version  int64
	rows     exportID    // whose rows its lookups name
	settled  atomic.Bool // every shard has them
	shards   int         // serving shards that hold the rows
	spec     *model.ModelSpec
	features []feature
	inputs   []tfserving.Input
	tables   []embedding
	dims     map[string]int // of tables
	width    int            // of the tower's input
	tower    *dense.Tower
	vars     []modelspec.Variable
	params   atomic.Pointer[params]

	staged map[uint32]map[int][]float32 // the writer's: chunks so far, by training shard
}

// newEntryModel checks an export against its own declaration.
func newEntryModel(name string, version int64, shards int, e *checkpoint.Entry) (*entryModel, error) {
	if err := modelspec.Validate(e.Spec); err != nil {
		return nil, fmt.Errorf("the export's model spec: %w", err)
	}
	tower, err := modelspec.NewTower(e.Spec)
	if err != nil {
		return nil, fmt.Errorf("the export's model spec: %w", err)
	}
	m := &entryModel{
		model: name, version: version, rows: exportID{version, e.Job}, shards: shards, dims: map[string]int{}, spec: e.Spec, tower: tower,
		vars: modelspec.Variables(e.Spec), staged: map[uint32]map[int][]float32{},
	}
	at := map[string]int{}
	for _, t := range e.Spec.GetTables() {
		at[t.GetName()] = len(m.tables)
		m.tables = append(m.tables, embedding{name: t.GetName(), dim: int(t.GetDim())})
		m.dims[t.GetName()] = int(t.GetDim())
	}
	for _, f := range e.Spec.GetFeatures() {
		i, ok := at[f.GetTable()]
		if !ok {
			return nil, fmt.Errorf("feature %s reads table %q, which the spec does not declare", f.GetName(), f.GetTable())
		}
		m.features = append(m.features, feature{name: f.GetName(), slot: f.GetSlot(), table: i, offset: m.width})
		m.inputs = append(m.inputs, tfserving.Input{Name: f.GetName(), Dtype: types_go_proto.DataType_DT_INT64})
		m.width += m.tables[i].dim
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
	m.publish(e.SyncSeq, tensors)
	return m, nil
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
	tensors := slices.Clone(m.params.Load().tensors)
	for i, values := range staged {
		tensors[i] = values
	}
	m.publish(seq, tensors)
	return nil
}
