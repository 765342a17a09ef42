package kernels

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/loadtest/bench"
)

// specs are the models that the benchmark of training knows.
var specs = map[string]func() (*model.ModelSpec, error){
	"deepfm": func() (*model.ModelSpec, error) { return specfile.Parse([]byte(deepFMSpec)) },
	"movies": func() (*model.ModelSpec, error) { return modelspec.MovieRanking(), nil },
}

// deepFMSpec is the model that peers train, too: 26 fields of 16, MLP 1024-256-32.
const deepFMSpec = `
name: deepfm
features: [{name: "C{1..26}", slot: "{1..26}", table: c}]
tables: [{name: c, segments: [{name: w, dim: 1, initializer: {zeros: {}}}, {name: v, dim: 16}]}]
outputs: [{name: w, type: ADDN, slices: ["*.w"]}, {name: v, type: STACK, slices: ["*.v"]}]
layers:
- {name: pairs, fm: {}, inputs: [v]}
- {name: deep, mlp: {units: [1024, 256, 32, 1]}, inputs: [v]}
- {name: logit, add: {}, inputs: [w, pairs, deep]}
tasks: [{logit: logit, label: {field: click, threshold: 1}}]
dense_optimizer: {adagrad: {learning_rate: 0.01, initial_accumulator_value: 0.1}}
`

// Spec is a model of that name, with products of float32 or bfloat16.
func Spec(name string, bf16 bool) (*model.ModelSpec, error) {
	make, ok := specs[name]
	if !ok {
		return nil, fmt.Errorf("%w of training %q: there are deepfm and movies", bench.ErrUnknown, name)
	}
	spec, err := make()
	if err == nil && bf16 {
		spec.Compute = model.ModelSpec_BF16
	}
	return spec, err
}

// Vocabulary is how many ids a feature has.
const Vocabulary = 1_000_000
