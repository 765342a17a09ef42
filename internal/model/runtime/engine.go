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
	spec     *model.ModelSpec
	hash     string
	samples  int         // most of a batch
	train    *nn.Program // score, loss and all gradients
	score    *nn.Program
	at       outputs // of train
	vars     []modelspec.Variable
	plan     *layout.Plan
	features []feature
	tables   []table
	shards   int
}

// feature and table are those of the spec, in its order; the plan has its own.
type feature struct {
	name   string
	slot   uint32
	column int // in the plan
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
	features := len(spec.GetFeatures())
	if samples < 1 || samples > maxIDs/features {
		return nil, fmt.Errorf("batches of %d samples with %d features: give 1 to %d", samples, features, maxIDs/features)
	}
	plan, err := layout.Compile(planOf(m, shards, samples))
	if err != nil {
		return nil, err
	}
	e := &Engine{
		spec: spec, hash: modelspec.Hash(spec), samples: samples, shards: shards,
		train: train, score: score, at: outputsOf(m), vars: m.Variables, plan: plan,
	}
	names := plan.Tables()
	for _, t := range spec.GetTables() {
		e.tables = append(e.tables, table{t.GetName(), int(t.GetDim()), slices.Index(names, t.GetName())})
	}
	for _, f := range spec.GetFeatures() {
		column, _ := plan.Feature(f.GetName())
		e.features = append(e.features, feature{f.GetName(), f.GetSlot(), column})
	}
	return e, nil
}

// maxIDs bounds the ids of a batch.
const maxIDs = 1 << 28

// planOf is how the rows of a sample become the model's tensors.
func planOf(m *modelspec.Model, shards, samples int) layout.Config {
	features := m.Spec.GetFeatures()
	c := layout.Config{Shards: shards, Limits: layout.Limits{
		Batch: samples, Rows: samples * len(features), FIDs: samples * len(features),
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

// Variables are the dense variables in order; they are not to be changed.
func (e *Engine) Variables() []modelspec.Variable { return e.vars }
