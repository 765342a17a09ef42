package modelspec_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/kernels/nn"
)

// modelCase is a model, a batch, and first values.
type modelCase struct {
	name    string
	m       *modelspec.Model
	program *nn.Program
	in      [][]float32

	Spec      json.RawMessage        `json:"spec"`
	Outputs   []outputCase           `json:"outputs"`
	Floats    map[string][][]float32 `json:"floats"`
	Variables [][2]any               `json:"variables"` // names and values, in order
	Labels    [][]float32            `json:"labels"`
	values    [][]float32            // of the variables
}

type outputCase struct {
	Name    string    `json:"name"`
	Tensors []any     `json:"tensors"`
	Lengths []float32 `json:"lengths,omitempty"`
}

const modelSamples = 13

// modelOf compiles a spec and draws a batch for it.
func modelOf(t *testing.T, name string, spec *model.ModelSpec, seed uint64) *modelCase {
	t.Helper()
	m, err := modelspec.Compile(spec)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	p, err := nn.Compile(m.Train, nn.Options{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := &modelCase{name: name, m: m, program: p, Spec: text, Floats: map[string][][]float32{}}
	r := rand.New(rand.NewPCG(seed, 17))
	c.drawVariables(spec, r)
	lengths := lengthsOf(spec)
	c.feed(t, c.drawOutputs(r, lengths), lengths, r)
	return c
}

// drawVariables moves each variable a little from where it starts.
func (c *modelCase) drawVariables(spec *model.ModelSpec, r *rand.Rand) {
	for _, v := range c.m.Variables {
		values := modelspec.InitVariable(spec, v)
		for i := range values {
			values[i] += (r.Float32() - 0.5) / 4
		}
		dims := make([]int, len(v.Shape))
		for i, d := range v.Shape {
			dims[i] = int(d)
		}
		c.values, c.Variables = append(c.values, values), append(c.Variables, [2]any{v.Name, nested(values, dims)})
	}
}

// lengthsOf is how many rows each sample has of each sequence: all lengths there can be, in turn.
func lengthsOf(spec *model.ModelSpec) map[string][]float32 {
	lengths := map[string][]float32{}
	for _, f := range spec.GetFeatures() {
		if f.GetPooling() == model.Feature_FIRSTN {
			lengths[f.GetName()] = make([]float32, modelSamples)
			for i := range lengths[f.GetName()] {
				lengths[f.GetName()][i] = float32(i % int(f.GetMaxSequenceLength()+1))
			}
		}
	}
	return lengths
}

// drawOutputs draws the tensors of rows, and returns them by their ports.
func (c *modelCase) drawOutputs(r *rand.Rand, lengths map[string][]float32) map[string][]float32 {
	drawn := map[string][]float32{}
	for _, o := range c.m.Outputs {
		made := outputCase{Name: o.Name, Lengths: lengths[o.Slices[0].Feature]}
		for i, shape := range o.Shapes {
			size := 1
			for _, d := range shape {
				size *= d
			}
			values := make([]float32, modelSamples*size)
			for k := range values {
				values[k] = r.Float32() - 0.5
				if made.Lengths != nil {
					if step := k % size / shape[len(shape)-1] % shape[len(shape)-2]; step >= int(made.Lengths[k/size]) {
						values[k] = 0 // as layout leaves what is not there
					}
				}
			}
			port := "rows of " + o.Name
			if o.Type == model.Output_NONE {
				port += fmt.Sprintf(".%d", i)
			}
			drawn[port] = values
			made.Tensors = append(made.Tensors, nested(values, append([]int{modelSamples}, shape...)))
		}
		c.Outputs = append(c.Outputs, made)
	}
	return drawn
}

// feed puts everything in the order of the program's inputs, and draws the labels.
func (c *modelCase) feed(t *testing.T, rows, lengths map[string][]float32, r *rand.Rand) {
	t.Helper()
	c.Labels = make([][]float32, len(c.m.Tasks))
	for _, port := range c.program.Inputs() {
		values := rows[port.Name]
		switch kind, name, _ := strings.Cut(port.Name, " of "); {
		case values != nil:
		case kind == "lengths":
			values = lengths[name]
		case kind == "label":
			for range modelSamples {
				values = append(values, float32(r.IntN(2)))
			}
			c.Labels[slices.IndexFunc(c.m.Tasks, func(t modelspec.Task) bool { return t.Name == name })] = values
		default:
			t.Fatalf("%s: the input %q", c.name, port.Name)
		}
		c.in = append(c.in, values)
	}
}

// nested is values as lists of lists.
func nested(values []float32, dims []int) any {
	if len(dims) == 1 {
		return values
	}
	all, size := make([]any, dims[0]), len(values)/dims[0]
	for i := range all {
		all[i] = nested(values[i*size:][:size], dims[1:])
	}
	return all
}

type modelAnswer struct {
	Logits    [][]float64
	Loss      float64
	Gradients [][]float64
}

// agrees runs the model, and holds it beside theirs.
func (c *modelCase) agrees(t *testing.T, theirs modelAnswer) {
	t.Helper()
	var lane nn.Lane
	var out nn.Outputs
	if err := c.program.Run(&lane, modelSamples, c.in, &nn.Weights{Values: c.values}, &out); err != nil {
		t.Fatal(err)
	}
	const bound = 1e-5
	worst := 0.
	close := func(what string, ours, theirs float64) {
		off := math.Abs(ours-theirs) / max(1, math.Abs(theirs))
		if worst = max(worst, off); !(off <= bound) {
			t.Errorf("%s: %.8g, they say %.8g", what, ours, theirs)
		}
	}
	task, gradient, moved, loss := 0, 0, 0., 0.
	for i, port := range c.program.Outputs() {
		values := out.Values[i]
		switch {
		case strings.HasPrefix(port.Name, "score of "):
			for k, x := range values {
				ours := float64(x)
				if c.m.Tasks[task].Loss == model.Task_CROSS_ENTROPY {
					ours = math.Log(ours / (1 - ours))
				}
				close(fmt.Sprintf("logit %d of %s", k, c.m.Tasks[task].Name), ours, theirs.Logits[task][k])
			}
			task++
		case strings.HasPrefix(port.Name, "gradient "):
			of := theirs.Gradients[gradient]
			if len(of) == 0 {
				of = make([]float64, len(values)) // nothing depends on it
			}
			if len(of) != len(values) {
				t.Fatalf("%s has %d numbers, theirs %d", port.Name, len(values), len(of))
			}
			for k, x := range values {
				moved = max(moved, math.Abs(of[k]))
				close(fmt.Sprintf("number %d of %s", k, port.Name), float64(x), of[k])
			}
			gradient++
		case port.Name == "loss":
			loss += float64(values[0])
		case strings.HasPrefix(port.Name, "loss of layer "):
			each := strings.HasSuffix(port.Name, "/activity") || c.m.Spec.GetReduction() == model.ModelSpec_MEAN
			if loss += float64(values[0]); !each {
				loss -= float64(values[0]) * (modelSamples - 1) / modelSamples
			}
		}
	}
	if c.m.Spec.GetReduction() == model.ModelSpec_SUM {
		theirs.Loss /= modelSamples
	}
	close("the loss", loss, theirs.Loss)
	if task != len(theirs.Logits) || gradient != len(theirs.Gradients) || moved == 0 {
		t.Errorf("%d tasks and %d gradients of %d and %d, the largest %g", task, gradient, len(theirs.Logits), len(theirs.Gradients), moved)
	}
	t.Logf("within %.1e; the largest gradient is %.2g", worst, moved)
}

// oracleModels are all ready models, and some for what these have not.
func oracleModels(t *testing.T) (all []*modelCase) {
	t.Helper()
	files, err := filepath.Glob("../../../docs/models/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%v, %v", files, err)
	}
	for i, file := range files {
		spec, err := specfile.Read(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, modelOf(t, filepath.Base(file), spec, uint64(i)))
	}
	for i, tc := range oracleLayers {
		text := strings.Replace(deep, "- {name: logit, add: {bias: true}, inputs: [w, pairs, deep]}",
			tc.layers+"\n- {name: last, units: 1, inputs: [x]}\n- {name: logit, add: {}, inputs: [w, pairs, deep, last]}", 1)
		spec, err := specfile.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		all = append(all, modelOf(t, tc.name, spec, uint64(100+i)))
		if strings.HasPrefix(tc.name, "losses of") {
			mean := proto.CloneOf(spec)
			mean.Reduction = model.ModelSpec_MEAN
			all = append(all, modelOf(t, tc.name+", of a mean", mean, uint64(100+i)))
		}
	}
	for i, tc := range lengthLayers {
		spec, err := specfile.Parse([]byte(strings.Replace(watched, "- {name: x}", tc.layers, 1)))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		all = append(all, modelOf(t, tc.name, spec, uint64(300+i)))
	}
	for i, text := range []string{towers, strings.Replace(towers, ", log_q: every", "", 1)} {
		if i > 0 {
			text = strings.Replace(strings.Replace(text, "[movie.v]", "[movie]", 1), "- {name: every, slices: [movie.every]}\n", "", 1)
		}
		spec, err := specfile.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c := modelOf(t, []string{"in-batch softmax less log q", "in-batch softmax"}[i], spec, uint64(200+i))
		for _, o := range c.Outputs {
			for k, x := range c.in {
				if o.Name == "every" && len(x) == modelSamples && c.program.Inputs()[k].Name == "rows of every" {
					for j := range x { // and what python has is the same memory
						x[j] = float32(j) * 3 / 4
					}
				}
			}
		}
		all = append(all, c)
	}
	return all
}

// oracleLayers are kinds and forms of layers that no ready model has.
var oracleLayers = []struct{ name, layers string }{
	{"full cross", "- {name: x, cross: {depth: 2}, inputs: [v, w]}"},
	{"layer norm", "- {name: x, norm: {}, inputs: [v]}"},
	{"length 1", "- {name: x, norm: {type: L2}, inputs: [v]}"},
	{"mean of a stack", "- {name: x, pool: {type: MEAN}, inputs: [v]}"},
	{"products", "- {name: x, mul: {}, inputs: [v, v]}"},
	{"gelu and silu", "- {name: x, mlp: {units: [5, 4], activation: GELU}, activation: SILU, inputs: [v]}"},
	{"leaky relu and tanh", "- {name: x, mlp: {units: [5, 4], activation: LEAKY_RELU}, activation: TANH, inputs: [v]}"},
	{"attention by raw scores", "- {name: one, units: 4, inputs: [w]}\n- {name: x, attention: {raw: true, activation: PRELU, units: [3, 2]}, inputs: [one, v]}"},
	{"augru over a stack", "- {name: one, units: 4, inputs: [w]}\n- {name: att, attention: {}, inputs: [one, v]}\n- {name: x, augru: {units: 3}, inputs: [v, att.1]}"},
	{"states of a gru", "- {name: g, gru: {units: 4}, inputs: [v]}\n- {name: x, pool: {}, inputs: [g.1]}"},
	{"mmoe", "- {name: m, mmoe: {experts: 3, units: [5, 4], tasks: 2}, activation: PRELU, inputs: [v, w]}\n- {name: x, add: {}, inputs: [m.0, m.1]}"},
	{"losses of kernels", "- {name: x, mlp: {units: [5, 4]}, kernel_regularizer: {l1: 0.01, l2: 0.3}, bias_regularizer: {l2: 0.5}, inputs: [v, w]}"},
	{"losses of experts and gates", "- {name: m, mmoe: {experts: 3, units: [5, 4], tasks: 2}, activation: PRELU, kernel_regularizer: {l2: 0.1}, activity_regularizer: {l2: 0.2}, inputs: [v, w]}\n- {name: x, add: {}, inputs: [m.0, m.1]}"},
	{"losses of rows and of attention", "- {name: rows, activate: {}, activity_regularizer: {l1: 0.02, l2: 0.25}, inputs: [v]}\n- {name: one, units: 4, inputs: [w]}\n- {name: x, attention: {units: [3]}, activity_regularizer: {l1: 0.1}, kernel_regularizer: {l1: 0.1}, inputs: [one, v]}"},
	{"ple of three levels", "- {name: m, ple: {levels: 3, experts: 2, shared: 1, units: [5, 4], tasks: 2}, inputs: [v, w]}\n- {name: x, mul: {}, inputs: [m.0, m.1]}"},
}

// watched has sequences of lengths 0 to 5.
const watched = `name: watched
features:
- {name: movie, slot: 2, table: movie}
- {name: history, slot: 2, table: movie, pooling: FIRSTN, max_sequence_length: 5, missing: EMPTY}
tables:
- {name: movie, dim: 4}
outputs:
- {name: m, slices: [movie]}
- {name: h, slices: [history]}
layers:
- {name: x}
- {name: logit, units: 1, inputs: [x, m]}
tasks:
- {logit: logit, label: {field: click, threshold: 1}}
dense_optimizer: {adagrad: {learning_rate: 0.05, initial_accumulator_value: 0.1}}
`

// lengthLayers read sequences with lengths; what lies behind these is not 0 in all of them.
var lengthLayers = []struct{ name, layers string }{
	{"sum of a history", "- {name: x, pool: {}, inputs: [h]}"},
	{"mean of a history", "- {name: x, pool: {type: MEAN}, inputs: [h]}"},
	{"sum of normalized steps", "- {name: s, norm: {}, inputs: [h]}\n- {name: x, pool: {}, inputs: [s]}"},
	{"mean of activated states", "- {name: g, gru: {units: 3}, inputs: [h]}\n- {name: s, activate: {}, activation: SIGMOID, inputs: [g.1]}\n- {name: x, pool: {type: MEAN}, inputs: [s]}"},
	{"raw attention to states", "- {name: g, gru: {units: 4}, inputs: [h]}\n- {name: x, attention: {raw: true, units: [3]}, inputs: [m, g.1]}"},
	{"raw scores of an augru", "- {name: a, attention: {raw: true}, inputs: [m, h]}\n- {name: x, augru: {units: 3}, inputs: [h, a.1]}"},
	{"attention to normalized steps", "- {name: s, norm: {type: LAYER}, inputs: [h]}\n- {name: x, attention: {units: [3], activation: PRELU}, inputs: [m, s]}"},
}

// towers are two, of a batch that is its own candidates.
const towers = `name: towers
features:
- {name: user, slot: 1, table: user}
- {name: movie, slot: 2, table: movie}
tables:
- {name: user, dim: 4}
- name: movie
  segments:
  - {name: v, dim: 4}
  - {name: every, dim: 1, initializer: {constants: {constant: 100}}, optimizer: {batch_softmax: {learning_rate: 0.1}}}
outputs:
- {name: u, slices: [user]}
- {name: m, slices: [movie.v]}
- {name: every, slices: [movie.every]}
layers:
- {name: user_tower, mlp: {units: [8, 4]}, inputs: [u]}
- {name: movie_tower, mlp: {units: [8, 4]}, inputs: [m]}
- {name: similarity, dot: {}, inputs: [user_tower, movie_tower]}
tasks:
- {logit: similarity, loss: IN_BATCH_SOFTMAX, log_q: every}
dense_optimizer: {adagrad: {learning_rate: 0.05, initial_accumulator_value: 0.1}}
`

// beside holds all models beside a library's own arithmetic and derivatives, from the same first
// values: logits, loss and gradients to 1e-5 in float32.
func beside(t *testing.T, python, library string) {
	cases := oracleModels(t)
	var said []modelAnswer
	answer(t, python, []string{"testdata/models.py", library}, cases, &said)
	if len(said) != len(cases) {
		t.Fatalf("%d answers to %d models", len(said), len(cases))
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.agrees(t, said[i]) })
	}
}

func TestModelsAgainstTensorFlow(t *testing.T) { beside(t, oracle.Python(t), "tensorflow") }

func TestModelsAgainstTorch(t *testing.T) { beside(t, oracle.Torch(t), "torch") }
