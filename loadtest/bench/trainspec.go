package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// trainModels are the models that the benchmark of training knows.
var trainModels = map[string]func() (*model.ModelSpec, error){
	"deepfm": func() (*model.ModelSpec, error) { return modelspec.ParseYAML([]byte(deepFMSpec)) },
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

// trainSpec is a model of that name, with products of float32 or bfloat16.
func trainSpec(name string, bf16 bool) (*model.ModelSpec, error) {
	make, ok := trainModels[name]
	if !ok {
		return nil, fmt.Errorf("%w of training %q: there are deepfm and movies", ErrUnknown, name)
	}
	spec, err := make()
	if err == nil && bf16 {
		spec.Compute = model.ModelSpec_BF16
	}
	return spec, err
}

// vocabulary is how many ids a feature has.
const vocabulary = 1_000_000

// trainRecords are n JSON records of a model's fields, in which some ids come up far more often than
// others.
func trainRecords(spec *model.ModelSpec, n int) []kafka.Record {
	rng := rand.New(rand.NewPCG(11, uint64(n)))
	zipf := rand.NewZipf(rng, 1.1, 20, vocabulary-1)
	label := spec.GetLabel()
	if label == nil {
		label = spec.GetTasks()[0].GetLabel()
	}
	out := make([]kafka.Record, n)
	for i := range out {
		line := []byte{'{'}
		for _, f := range spec.GetFeatures() {
			field := f.GetField()
			if field == "" {
				field = f.GetName()
			}
			line = strconv.AppendUint(append(strconv.AppendQuote(line, field), ':'), zipf.Uint64(), 10)
			line = append(line, ',')
		}
		line = append(strconv.AppendQuote(line, label.GetField()), ':')
		line = strconv.AppendFloat(line, float64(rng.IntN(2))*label.GetThreshold(), 'f', -1, 64)
		out[i] = kafka.Record{Partition: -1, Key: strconv.AppendInt(nil, int64(i), 10), Value: slices.Clip(append(line, '}'))}
	}
	return out
}
