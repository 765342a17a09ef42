// Package modelspec gives a declared model its meaning: what is valid, which variables
// and tables follow from it, where each of them lives and what it starts as. Everyone
// who holds the same ModelSpec gets the same answers.
package modelspec

import (
	"fmt"
	"math"
	"path"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/rule"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

const (
	signatureBits = 48
	signatureMask = 1<<signatureBits - 1

	// MaxSlot is the greatest feature slot: 15 bits, so that a feature id is never
	// negative.
	MaxSlot = 1<<15 - 1

	// MaxID is the greatest id within a slot. Ids that come from outside are refused
	// beyond it: the lower bits alone would name somebody else.
	MaxID = signatureMask
)

// FID is the feature id of id in slot: slot << 48 | the lower 48 bits of id.
func FID(slot uint32, id int64) int64 {
	return int64(slot)<<signatureBits | id&signatureMask
}

// SlotOf is the slot in a feature id.
func SlotOf(fid int64) uint32 { return uint32(uint64(fid) >> signatureBits) }

// ShardOf is the parameter-server shard of a feature id: fid mod shards, never negative.
func ShardOf(fid int64, shards int) int {
	m := fid % int64(shards)
	if m < 0 {
		m += int64(shards)
	}
	return int(m)
}

// Variable is a dense variable's name and shape.
type Variable struct {
	Name  string
	Shape []uint32
	Size  int // product of Shape

	fill float32 // what it is at first; NaN: it is drawn
}

// Variables lists the dense variables of a valid spec, layer by layer: of a dense one
// "<layer>/kernel" of [in, units] and "<layer>/bias" of [units]. An index into this list names
// a variable wherever a Band does. Another spec has none.
func Variables(spec *model.ModelSpec) []Variable {
	m, err := Compile(spec)
	if err != nil {
		return nil
	}
	return m.Variables
}

// VariableShard is the shard that keeps the first band of the index-th of Variables: round
// robin.
func VariableShard(index, shards int) int { return index % shards }

// InitVariable is a variable's first value: what its group declares, or zeros for a bias and
// Glorot uniform for a kernel, within ±sqrt(6/(in+out)), drawn under table.Key(seed, name, 0).
func InitVariable(spec *model.ModelSpec, v Variable) []float32 {
	values, key := make([]float32, v.Size), table.Key(spec.GetSeed(), v.Name, 0)
	if g := group(spec, v.Name); g.GetInitializer() != nil {
		if i, err := rule.Initializer(g.GetInitializer()); err == nil { // as it is in a valid spec
			i.Init(values, key)
			return values
		}
	}
	if v.fill == v.fill && len(v.Shape) != 2 {
		for i := range values {
			values[i] = v.fill
		}
		return values
	}
	limit := float32(math.Sqrt(6 / (float64(v.Shape[0]) + float64(v.Shape[1]))))
	table.RandomUniform{Min: -limit, Max: limit}.Init(values, key)
	return values
}

// group is the first one that matches a variable, or nil.
func group(spec *model.ModelSpec, variable string) *model.Group {
	for _, g := range spec.GetVariables() {
		if ok, err := path.Match(g.GetMatch(), variable); ok && err == nil {
			return g
		}
	}
	return nil
}

// InputSize is the width of the concatenated embeddings: the features' dims, in the
// order of the features.
func InputSize(spec *model.ModelSpec) int {
	n := 0
	for _, f := range spec.GetFeatures() {
		if t := Table(spec, f.GetTable()); t != nil {
			n += int(t.GetDim())
		}
	}
	return n
}

// Feature is the declared feature of that name, nil if there is none.
func Feature(spec *model.ModelSpec, name string) *model.Feature {
	for _, f := range spec.GetFeatures() {
		if f.GetName() == name {
			return f
		}
	}
	return nil
}

// Table is the declared table of that name, nil if there is none.
func Table(spec *model.ModelSpec, name string) *model.Table {
	for _, t := range spec.GetTables() {
		if t.GetName() == name {
			return t
		}
	}
	return nil
}

// DenseOptimizer is the optimizer of the dense variables that no group gives one of its own.
// The spec must be valid: a missing or wrong optimizer panics.
func DenseOptimizer(spec *model.ModelSpec) optim.Optimizer { return mustOptimizer(spec, nil) }

// VariableOptimizer is the optimizer of a dense variable: what its group declares, or else
// what the model does. The spec must be valid, as for DenseOptimizer.
func VariableOptimizer(spec *model.ModelSpec, variable string) optim.Optimizer {
	return mustOptimizer(spec, group(spec, variable))
}

func mustOptimizer(spec *model.ModelSpec, g *model.Group) optim.Optimizer {
	o, err := groupOptimizer(spec, g)
	if err != nil {
		panic(fmt.Sprintf("modelspec: dense optimizer of model %q, group %q: %v: validate the spec first", spec.GetName(), g.GetMatch(), err))
	}
	return o
}

// groupOptimizer is a group's, which may be nil. A group without an optimizer has the model's,
// and with neither that nor a learning rate of its own the model's rate, too.
func groupOptimizer(spec *model.ModelSpec, g *model.Group) (optim.Optimizer, error) {
	key := table.Key(spec.GetSeed(), "dense", 0)
	declared, rate := spec.GetDenseOptimizer(), spec.GetDenseLearningRate()
	if g.GetOptimizer() != nil || g.GetLearningRate() != nil {
		rate, key = g.GetLearningRate(), table.Key(spec.GetSeed(), g.GetMatch(), 0)
	}
	if g.GetOptimizer() != nil {
		declared = g.GetOptimizer()
	}
	return rule.Optimizer(declared, rate, key)
}

// Labelled is a label of a field's value: that itself where the label is raw, else 1 when it
// reaches the threshold, and 0 below; NaN is 0.
func Labelled(l *model.Label, value float64) float32 {
	switch {
	case l.GetRaw():
		return float32(value)
	case value >= l.GetThreshold():
		return 1
	}
	return 0
}
