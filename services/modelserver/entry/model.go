// Package entry is the part of a model that answers Predict: its dense tower, and how tensors
// or records become batches, and batches scores.
package entry

import (
	"context"
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
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// MaxBatch is the most rows that any model can be asked for at once.
const MaxBatch = 1 << 16

// Model computes scores. One goroutine writes params, any number read.
type Model struct {
	want     rows.Want   // what its lookups name
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
	bands    map[place]int                   // their sizes
	params   atomic.Pointer[runtime.Weights] // as of a MONOLITH_SYNC sequence

	joiner    joiner
	scratches sync.Pool                      // of *scratch
	staged    map[uint32]map[place][]float32 // the writer's: chunks so far, by training shard
}

// place is where a band of a dense variable belongs.
type place struct{ variable, at int }

// New checks an export against its own declaration. The model stands on rows of that export,
// spread over so many serving shards.
func New(name string, version int64, shards int, e *checkpoint.Entry) (*Model, error) {
	engine, err := runtime.New(e.Spec, shards, MaxBatch)
	if err != nil {
		return nil, fmt.Errorf("the export's model spec: %w", err)
	}
	m := &Model{
		want: rows.Want{Model: name, Serves: version, Version: version, Job: e.Job}, shards: shards, spec: e.Spec,
		engine: engine, vars: engine.Variables(), staged: map[uint32]map[place][]float32{},
		bands: map[place]int{},
	}
	m.scratches.New = func() any { return &scratch{batch: engine.NewBatch(), lookup: rows.NewLookup(shards)} }
	for _, b := range modelspec.Bands(m.vars) {
		m.bands[place{b.Variable, b.At}] = b.Size
	}
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

// Name is the model's.
func (m *Model) Name() string { return m.want.Model }

// Version is the one that m answers as.
func (m *Model) Version() int64 { return m.want.Serves }

// Serve makes m answer as a version, with rows of that version or, where anyRows is set, of
// any version of its job. It is called before m answers.
func (m *Model) Serve(version int64, anyRows bool) {
	m.want.Serves, m.want.Version = version, version
	if anyRows {
		m.want.Version = 0
	}
}

// Own gives m the rows of all its shards, so that it asks nobody for them. It is called before m answers.
func (m *Model) Own(shards []*rows.Shard) {
	m.want.Own = shards
	m.settled.Store(true)
}

// Everywhere asks all replicas of m's shards for its rows, and notes whether every shard has
// them.
func (m *Model) Everywhere(ctx context.Context, c *rows.Client) bool {
	if !c.Everywhere(ctx, m.want, m.shards) {
		return false
	}
	m.settled.Store(true)
	return true
}

// Settled says whether every shard has had the rows of m.
func (m *Model) Settled() bool { return m.settled.Load() }

// Inputs are those of the signature: the declared features and floats.
func (m *Model) Inputs() []tfserving.Input { return m.inputs }

// RESTInputs are Inputs, and what may stand instead of them.
func (m *Model) RESTInputs() []tfserving.Input { return m.rest }

// Outputs are the names of the scores, by task.
func (m *Model) Outputs() []string { return m.outputs }

// Probability says whether an output is the probability of something, and no other number.
func (m *Model) Probability(output int) bool {
	loss := m.engine.Tasks()[output].Loss
	return loss == model.Task_CROSS_ENTROPY || loss == model.Task_IN_BATCH_AUC
}

// publish lets Predicts stand on the variables as of a sequence.
func (m *Model) publish(seq uint64, tensors [][]float32) error {
	w, err := m.engine.Weights(seq, tensors)
	if err != nil {
		return err
	}
	m.params.Store(w)
	return nil
}

// Apply stages the variables of a chunk; the last one swaps them in all together, so
// no Predict sees half of a delta. A delta that contradicts itself changes nothing.
func (m *Model) Apply(d *delta.Delta, seq uint64) error {
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
func (m *Model) band(v *delta.Variable) (at place, values []float32, err error) {
	i := slices.IndexFunc(m.vars, func(w modelspec.Variable) bool { return w.Name == v.GetName() })
	if i < 0 {
		return at, nil, fmt.Errorf("dense variable %q is not in the export that is served; export the model again", v.GetName())
	}
	at = place{i, int(v.GetAt())}
	size, ok := m.bands[at]
	if !ok || len(v.GetValues()) != 4*size || !slices.Equal(v.GetShape(), m.vars[i].Shape) {
		return at, nil, fmt.Errorf("dense variable %s came as %v with %d bytes at %d, the spec says %v with %d there", v.GetName(), v.GetShape(), len(v.GetValues()), v.GetAt(), m.vars[i].Shape, 4*size)
	}
	values = make([]float32, size)
	compress.FP32{}.Decode(values, v.GetValues())
	for _, x := range values {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return at, nil, fmt.Errorf("dense variable %s holds %v", v.GetName(), x)
		}
	}
	return at, values, nil
}
