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
	if err := modelspec.Validate(spec); err != nil {
		return nil, err
	}
	train, score, err := programs(spec)
	if err != nil {
		return nil, err
	}
	features := len(spec.GetFeatures())
	if samples < 1 || samples > maxIDs/features {
		return nil, fmt.Errorf("batches of %d samples with %d features: give 1 to %d", samples, features, maxIDs/features)
	}
	plan, err := layout.Compile(planOf(spec, shards, samples))
	if err != nil {
		return nil, err
	}
	e := &Engine{
		spec: spec, hash: modelspec.Hash(spec), samples: samples, shards: shards,
		train: train, score: score, vars: modelspec.Variables(spec), plan: plan,
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

// planOf lays the rows of a sample side by side, in the order of the spec's features: the
// tower's input.
func planOf(spec *model.ModelSpec, shards, samples int) layout.Config {
	input := layout.Output{Name: "input", Type: layout.Concat}
	c := layout.Config{Shards: shards, Limits: layout.Limits{
		Batch: samples, Rows: samples * len(spec.GetFeatures()), FIDs: samples * len(spec.GetFeatures()),
	}}
	for _, f := range spec.GetFeatures() {
		dim := int(modelspec.Table(spec, f.GetTable()).GetDim())
		c.Features = append(c.Features, layout.Feature{Name: f.GetName(), Table: f.GetTable(), Pooling: layout.Sum, SliceDims: []int{dim}})
		input.Slices = append(input.Slices, layout.Slice{Feature: f.GetName(), End: dim})
	}
	c.Outputs = []layout.Output{input}
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
