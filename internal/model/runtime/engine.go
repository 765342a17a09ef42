// Package runtime computes what a declared model says: the trainer's step and the model
// server's scores, on rows that the caller looks up.
//
//	samples ── Add ──► Batch ── Seal ──► Blocks: ids by shard and table ── looked up ──► Rows
//	                    Train: Rows ──► loss, scores, Grads, Dense        Score: Rows ──► scores
//
// An [Engine] never changes and is everybody's; a [Batch] and a [Lane] are one goroutine's
// at a time, except that the blocks of different shards may be filled side by side.
//
// What holds for the bits: a row's gradient is the sum of its samples' in their order, from
// +0 on; neither the number of shards nor the batch before shows anywhere.
package runtime

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/nn"
)

// Engine is a declared model whose rows are spread over a number of shards.
type Engine struct {
	spec      *model.ModelSpec
	hash      string
	samples   int         // most of a batch
	train     *nn.Program // score, loss and all gradients
	score     *nn.Program
	widths    []int   // by input of score: floats a sample
	at        outputs // of train
	vars      []modelspec.Variable
	tasks     []modelspec.Task
	penalties []modelspec.Added // losses of layers
	plan      *layout.Plan
	features  []feature
	first     int      // of features that is not crossed
	crossed   []int    // of features
	slots     []uint32 // by feature
	reads     int      // rows that a sample reads which has one id of each feature
	floats    []float
	tables    []table
	shards    int
	batchIDs  int  // most ids of a batch
	merge     bool // features share slots

	sequences []int // of features, as the model has them
	tensors   []tensor
	added     []bool // by feature: its rows are added to others'
}

// feature and table are those of the spec, in its order; the plan has its own.
type feature struct {
	name     string
	slot     uint32
	column   int   // in the plan
	cross    []int // of features; nil: it is not crossed
	sequence bool  // its rows are kept apart, length of them at most
	length   int
	rows     modelspec.Vocabulary // of which its ids are
}

// float is one of the spec's, of so many numbers a sample.
type float struct {
	name string
	dim  int
}

type table struct {
	name string
	dim  int
	at   int // in the plan
}

// New makes the engine of spec for batches of at most so many samples. The spec is not to be
// changed any more.
func New(spec *model.ModelSpec, shards, samples int) (*Engine, error) {
	m, err := modelspec.Compile(spec)
	if err != nil {
		return nil, err
	}
	train, score, err := programs(m)
	if err != nil {
		return nil, err
	}
	if most := MaxSamples(spec); samples < 1 || samples > most {
		return nil, fmt.Errorf("batches of %d samples that read %d rows each: give 1 to %d", samples, modelspec.Reads(spec), most)
	}
	ids := max(MaxBatchIDs, samples*modelspec.Reads(spec))
	plan, err := layout.Compile(planOf(m, shards, samples, ids))
	if err != nil {
		return nil, err
	}
	e := &Engine{
		spec: spec, hash: modelspec.Hash(spec), samples: samples, shards: shards, batchIDs: ids,
		train: train, score: score, at: outputsOf(m), vars: m.Variables, tasks: m.Tasks, penalties: m.Added, plan: plan,
	}
	names := plan.Tables()
	for _, t := range spec.GetTables() {
		e.tables = append(e.tables, table{t.GetName(), int(t.GetDim()), slices.Index(names, t.GetName())})
	}
	for _, in := range score.Inputs() {
		e.widths = append(e.widths, in.Shape.Size())
	}
	e.read(m)
	return e, nil
}

// MaxSamples is the most that New takes for a spec.
func MaxSamples(spec *model.ModelSpec) int { return maxIDs / max(modelspec.Reads(spec), 1) }

// read notes what a sample consists of.
func (e *Engine) read(m *modelspec.Model) {
	index, slots := map[string]int{}, map[uint32]bool{}
	for i, f := range e.spec.GetFeatures() {
		index[f.GetName()] = i
		e.merge = e.merge || slots[f.GetSlot()]
		slots[f.GetSlot()] = true
	}
	e.first = -1
	for i, f := range e.spec.GetFeatures() {
		made := feature{name: f.GetName(), slot: f.GetSlot(), sequence: f.GetPooling() == model.Feature_FIRSTN, length: int(f.GetMaxSequenceLength()), rows: modelspec.VocabularyOf(f)}
		made.column, _ = e.plan.Feature(f.GetName())
		for _, name := range f.GetCross() {
			made.cross = append(made.cross, index[name])
		}
		if made.cross != nil {
			e.crossed = append(e.crossed, i)
		} else if e.first < 0 {
			e.first = i
		}
		e.features, e.slots, e.reads = append(e.features, made), append(e.slots, made.slot), e.reads+made.rows.Rows()
	}
	for _, name := range m.Sequences {
		e.sequences = append(e.sequences, index[name])
	}
	for _, f := range e.spec.GetFloats() {
		e.floats = append(e.floats, float{f.GetName(), int(max(f.GetDim(), 1))})
	}
	e.trace(m, index)
}

// maxIDs bounds samples times the ids that each reads, one of a feature.
const maxIDs = 1 << 28

// planOf is how the rows of a sample become the model's tensors.
func planOf(m *modelspec.Model, shards, samples, ids int) layout.Config {
	features := m.Spec.GetFeatures()
	c := layout.Config{Shards: shards, Limits: layout.Limits{
		Batch: samples, Rows: samples * len(features), FIDs: ids,
	}}
	for _, f := range features {
		dim := int(modelspec.Table(m.Spec, f.GetTable()).GetDim())
		c.Features = append(c.Features, layout.Feature{
			Name: f.GetName(), Table: f.GetTable(), SliceDims: []int{dim},
			Pooling: layout.Pooling(f.GetPooling()), MaxSequenceLength: int(f.GetMaxSequenceLength()), // the numbers are the same
		})
	}
	for _, o := range m.Outputs {
		out := layout.Output{Name: o.Name, Type: layout.OutType(o.Type)}
		for _, s := range o.Slices {
			out.Slices = append(out.Slices, layout.Slice{Feature: s.Feature, Start: s.From, End: s.To})
		}
		c.Outputs = append(c.Outputs, out)
	}
	return c
}

// Spec is the declaration; it is not to be changed.
func (e *Engine) Spec() *model.ModelSpec { return e.spec }

// Hash is that of the declaration.
func (e *Engine) Hash() string { return e.hash }

// Shards is how many the rows are spread over.
func (e *Engine) Shards() int { return e.shards }

// Tasks are what the model predicts, in order; they are not to be changed.
func (e *Engine) Tasks() []modelspec.Task { return e.tasks }

// Samples is the most that a batch may have.
func (e *Engine) Samples() int { return e.samples }

// Variables are the dense variables in order; they are not to be changed.
func (e *Engine) Variables() []modelspec.Variable { return e.vars }
