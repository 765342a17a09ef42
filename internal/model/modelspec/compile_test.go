package modelspec_test

import (
	_ "embed"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/kernels/optim"
)

// deep is a model with a line for each element, to be edited by tests.
//
//go:embed testdata/deep.yaml
var deep string

// Each error names the node and its line.
func TestErrorsNameNodeAndLine(t *testing.T) {
	for _, tc := range []struct{ name, from, to, says string }{
		{"a cycle", "mlp: {units: [8, 1]}, inputs: [v]", "mlp: {units: [8, 1]}, inputs: [v, logit]", `line 16: layer "deep" reads itself, by way of logit, deep`},
		{"itself", "inputs: [w, pairs, deep]", "inputs: [logit]", `line 17: layer "logit" reads itself, by way of logit`},
		{"shapes that do not meet", "[8, 1]", "[8, 2]", `line 17: layer "logit": its inputs "w" and "deep" do not meet: the shapes are [n 1] and [n 2]`},
		{"fm of what is no stack", "fm: {}, inputs: [v]", "fm: {}, inputs: [w]", `line 15: layer "pairs": its input "w" has the shape [n 1]`},
		{"an unknown op", "fm: {}", "ffn: {}", `line 15: unknown field "ffn"`},
		{"ffm of slices that do not divide", "fm: {}, inputs: [v]", "ffm: {}, inputs: [w]", `line 15: layer "pairs": its input "w" has the shape [n 1]`},
		{"dot of three", "fm: {}, inputs: [v]", "dot: {}, inputs: [v, v, v]", `line 15: layer "pairs": it has 3 inputs: give two`},
		{"cross without depth", "fm: {}, inputs: [v]", "cross: {}, inputs: [v]", `line 15: layer "pairs": it has depth 0`},
		{"cross of a rank beyond", "fm: {}, inputs: [v]", "cross: {depth: 1, rank: 9}, inputs: [v]", `line 15: layer "pairs": it has rank 9, and its input 8 numbers`},
		{"attention without a sequence", "fm: {}, inputs: [v]", "attention: {}, inputs: [v]", `line 15: layer "pairs": it has 1 inputs: give the query and the sequence`},
		{"attention to what has no steps", "fm: {}, inputs: [v]", "attention: {}, inputs: [v, w]", `line 15: layer "pairs": its input "w" has the shape [n 1]: give it a sequence`},
		{"a query of another width", "fm: {}, inputs: [v]", "attention: {}, inputs: [w, v]", `line 15: layer "pairs": its inputs "w" and "v" do not meet: the query [n 1] is to be as wide as a step of the sequence [n 2 4]`},
		{"attention of no units", "fm: {}, inputs: [v]", "attention: {units: [0]}, inputs: [w, v]", `line 15: layer "pairs"`},
		{"gru without units", "fm: {}", "gru: {}", `line 15: layer "pairs": it has 0 units`},
		{"gru over what has no steps", "fm: {}, inputs: [v]", "gru: {units: 3}, inputs: [w]", `line 15: layer "pairs": its input "w" has the shape [n 1]: give it a sequence`},
		{"augru without scores", "fm: {}", "augru: {units: 3}", `line 15: layer "pairs": it has 1 inputs: give the sequence and its scores`},
		{"augru of scores for other steps", "fm: {}, inputs: [v]", "augru: {units: 3}, inputs: [v, w]", `line 15: layer "pairs": its inputs "v" and "w" do not meet: a sequence [n 2 4] needs a score for each step, and these are [n 1]`},
		{"mmoe without experts", "fm: {}", "mmoe: {units: [3], tasks: 2}", `line 15: layer "pairs": it has 0 experts: give 1 to 256`},
		{"mmoe without tasks", "fm: {}", "mmoe: {units: [3], experts: 2}", `line 15: layer "pairs": it has 0 tasks: give 1 to 64`},
		{"mmoe without units", "fm: {}", "mmoe: {tasks: 2, experts: 2}", `line 15: layer "pairs": it has 0 numbers of units`},
		{"mmoe that is read whole", "fm: {}", "mmoe: {units: [1], tasks: 2, experts: 2}", `line 17: layer "logit" reads "pairs", which has 2 values: name one, as pairs.0`},
		{"ple without levels", "fm: {}", "ple: {tasks: 2, experts: 2, shared: 1, units: [3]}", `line 15: layer "pairs": it has 0 levels`},
		{"ple without shared experts", "fm: {}", "ple: {levels: 1, tasks: 2, experts: 2, units: [3]}", `line 15: layer "pairs": it has 0 shared experts`},
		{"ple of too many experts", "fm: {}", "ple: {levels: 2, tasks: 2, experts: 64, shared: 1, units: [3]}", `line 15: layer "pairs": it has 258 experts on all levels: 256 are allowed`},
		{"an activation that is not there", "inputs: [v]}\n- {name: logit", "activation: 99, inputs: [v]}\n- {name: logit", `line 16: layer "deep" has the unknown activation 99`},
		{"a feature without a table", "slot: 2, table: movie", "slot: 2, table: film", `line 4: feature "movie" reads table "film"`},
		{"a slot twice", "slot: 2", "slot: 1", `line 4: feature "movie" has slot 1, which feature "user" has too, of table "user"`},
		{"an unknown input", "inputs: [w, pairs, deep]", "inputs: [w, pairs, deeper]", `line 17: layer "logit" reads "deeper", which is no output, float or layer`},
		{"a value that is not there", "inputs: [w, pairs, deep]", "inputs: [w, pairs.1, deep]", `line 17: layer "logit" reads "pairs.1", and "pairs" has 1 values`},
		{"an unknown slice", `["*.w"]`, `["*.u"]`, `line 12: output "w": slice "*.u": no segment is called "u"`},
		{"a slice of no feature", `["*.w"]`, `["film.w"]`, `line 12: output "w": slice "film.w" is of no declared feature`},
		{"slices of two widths", `["*.w"]`, `[user.w, movie.v]`, `line 12: output "w": ADDN needs slices of one width`},
		{"an output that nobody reads", "inputs: [w, pairs, deep]", "inputs: [pairs, deep]", `line 12: output "w" is read by no layer`},
		{"a layer that nobody reads", "inputs: [w, pairs, deep]", "inputs: [w, deep]", `line 15: layer "pairs" is read by no layer and no task`},
		{"a feature that nobody reads", `slices: ["*.w"]}` + "\n" + `- {name: v, type: STACK, slices: ["*.v"]}`, `slices: [user.w]}` + "\n" + `- {name: v, type: STACK, slices: [user.v]}`, `line 4: feature "movie" is a slice of no output`},
		{"one name for two", "name: pairs", "name: v", `layer "v" has the name of an output`},
		{"a task of no layer", "{logit: logit,", "{logit: v,", `line 19: task "v" learns "v", which is no layer`},
		{"a wide logit", "{logit: logit,", "{name: t, logit: wide,", `which is no layer`},
		{"units too many", "[8, 1]", "[8, 65537]", `line 16: layer "deep": it has 65537 units`},
		{"a kernel too large", "mlp: {units: [8, 1]}", "mlp: {units: [65536, 65536]}", `line 16: layer "deep": it has a 1/kernel of 65536 by 65536`},
		{"units of another kind", "mlp: {units: [8, 1]}", "units: 3, mlp: {units: [8, 1]}", `line 16: layer "deep": units are a dense layer's`},
		{"a segment twice", "name: v, dim: 4", "name: w, dim: 4", `line 6: table "user": two segments are called "w"`},
		{"a wrong type", "slot: 2", "slot: two", `line 4: invalid value for uint32`},
		{"a range that falls", "name: movie, slot: 2", `name: "m{3..1}", slot: 2`, `line 4: the range {3..1} has 0 numbers`},
		{"ranges of two lengths", "name: movie, slot: 2", `name: "m{1..3}", slot: "{1..2}"`, `line 4: the ranges {1..3} and {1..2} of one element count differently`},
		{"a raw label", "threshold: 1", "raw: true", `line 19: task "logit" has a raw label, which only MSE learns`},
		{"two tasks", "tasks:\n", "tasks:\n- {logit: pairs}\n", `line 19: task "pairs" has no label, and the model has none`},
		{"floats", "layers:\n", "floats: [{name: age}]\nlayers:\n", `line 14: float "age" is read by no layer`},
		{"a sequence", "slot: 2, table", "slot: 2, pooling: FIRSTN, max_sequence_length: 4, table", `line 12: output "w": it puts feature "movie" beside "user", of which one is a sequence of 4`},
		{"a cross of what is not there", "slot: 2, table", "slot: 2, cross: [user, film], table", `line 4: feature "movie" crosses "film", which is no feature`},
		{"a cross of itself", "slot: 2, table", "slot: 2, cross: [user, movie], table", `line 4: feature "movie" crosses "movie", which is crossed itself`},
		{"a cross of one", "slot: 2, table", "slot: 2, cross: [user], table", `line 4: feature "movie" crosses 1 features: give 2 to 8`},
		{"a cross of a feature with itself", "slot: 2, table", "slot: 2, cross: [user, user], table", `line 4: feature "movie" crosses "user" with itself`},
		{"a cross with a field", "slot: 2, table", "slot: 2, field: m, cross: [user, user], table", `line 4: feature "movie" is crossed, so no record has it`},
		{"weights of pairs", "{logit: logit,", "{logit: logit, loss: IN_BATCH_AUC, weight_field: w,", `line 19: task "logit" has the loss IN_BATCH_AUC, which compares the samples`},
		{"a softmax of no towers", "{logit: logit,", "{logit: logit, loss: IN_BATCH_SOFTMAX,", `line 19: task "logit" has the loss IN_BATCH_SOFTMAX and learns layer "logit", which is no dot of two towers`},
		{"training in int8", "name: deep\n", "name: deep\ncompute: INT8\n", `line 2: the compute is INT8, which nothing is trained in: use FP32 or BF16, and serving_compute: INT8 for scores`},
		{"a layer in int8", "mlp: {units: [8, 1]}", "compute: INT8, mlp: {units: [8, 1]}", `line 16: layer "deep" has the compute INT8, which nothing is trained in`},
		{"a loss of no kernel", "fm: {},", "fm: {}, kernel_regularizer: {l2: 1},", `line 15: layer "pairs": it has a kernel_regularizer and, as a layer of kind fm, no variable that is a matrix: take it away, or put it on a layer that has`},
		{"a loss of no bias", "fm: {},", "fm: {}, bias_regularizer: {l2: 1},", `line 15: layer "pairs": it has a bias_regularizer and, as a layer of kind fm, no bias`},
		{"a loss of nothing", "[8, 1]},", "[8, 1]}, kernel_regularizer: {},", `line 16: layer "deep": its kernel_regularizer has l1 0 and l2 0: give finite numbers, one of them above 0 and none below`},
		{"a loss that falls", "[8, 1]},", "[8, 1]}, activity_regularizer: {l1: 1, l2: -1},", `line 16: layer "deep": its activity_regularizer has l1 1 and l2 -1`},
		{"an endless loss", "[8, 1]},", "[8, 1]}, bias_regularizer: {l1: Infinity},", `line 16: layer "deep": its bias_regularizer has l1 +Inf and l2 0`},
		{"serving in int4", "name: deep\n", "name: deep\nserving_compute: INT4\n", `line 2: invalid value for enum field servingCompute: "INT4"`},
		{"serving in a number", "name: deep\n", "name: deep\nserving_compute: 3\n", `line 2: the serving_compute 3 is unknown: use FP32, BF16 or INT8`},
	} {
		text := strings.Replace(deep, tc.from, tc.to, 1)
		if text == deep {
			t.Fatalf("%s: nothing was replaced", tc.name)
		}
		if _, err := specfile.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: want %q, got %v", tc.name, tc.says, err)
		}
	}
}

// What a file leaves out stands in the fact, ranges are written out, and declaring the fact again
// changes nothing.
func TestNormalized(t *testing.T) {
	spec, err := specfile.Parse([]byte(deep))
	if err != nil {
		t.Fatal(err)
	}
	if f := spec.Features[1].Field; f != "movie" {
		t.Errorf("the field is %q", f)
	}
	if spec.Tables[0].Dim != 5 || !proto.Equal(spec.Tables[0].Segments[1].Optimizer, spec.DenseOptimizer) || spec.Tables[0].Segments[1].Initializer.GetRandomUniform().GetMax() != 0.05 {
		t.Errorf("the table is %v", spec.Tables[0])
	}
	if spec.Label.GetField() != "click" || spec.Tasks[0].Label != nil || spec.Tasks[0].Name != "logit" {
		t.Errorf("label %v, tasks %v", spec.Label, spec.Tasks)
	}
	if modelspec.Normalize(spec) != spec {
		t.Error("a normalized spec is changed")
	}
	old := modelspec.MovieRanking()
	if modelspec.Normalize(old) != old {
		t.Error("the demo's spec is changed")
	}
	if err := modelspec.Trainable(spec); err != nil {
		t.Error(err)
	}
}

func TestRanges(t *testing.T) {
	text := strings.Replace(deep, "- {name: movie, slot: 2, table: movie}", `- {name: "C{1..3}", slot: "{7..9}", table: movie}`, 1)
	text = strings.Replace(text, `slices: ["*.v"]`, `slices: [user.v, "C{1..3}.v"]`, 1)
	spec, err := specfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range spec.Features[1:] {
		got = append(got, fmt.Sprintf("%s %s %d %s", f.Name, f.Field, f.Slot, f.Table))
	}
	if diff := cmp.Diff([]string{"C1 C1 7 movie", "C2 C2 8 movie", "C3 C3 9 movie"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"user.v", "C1.v", "C2.v", "C3.v"}, spec.Outputs[1].Slices); diff != "" {
		t.Error(diff)
	}
	m, err := modelspec.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]int{{4, 4}}, m.Outputs[0].Shapes); diff != "" { // by name: v before w
		t.Error(diff)
	}
	if last := m.Outputs[1].Slices[3]; last != (modelspec.Slice{Feature: "C3", From: 0, To: 1}) {
		t.Errorf("the last slice is %v", last)
	}
}

// A layer may read one that is declared behind it; variables come in the order of computing.
func TestLayersInAnyOrder(t *testing.T) {
	lines := strings.SplitAfter(deep, "\n")
	lines[14], lines[16] = lines[16], lines[14]
	spec, err := specfile.Parse([]byte(strings.Join(lines, "")))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range modelspec.Variables(spec) {
		names = append(names, v.Name)
	}
	if diff := cmp.Diff([]string{"deep/0/kernel", "deep/0/bias", "deep/1/kernel", "deep/1/bias", "logit/bias"}, names); diff != "" {
		t.Error(diff)
	}
}

// The first group that matches gives a variable its first values.
func TestGroupsOfVariables(t *testing.T) {
	text := deep + "variables: [{match: \"deep/*/bias\", initializer: {ones: {}}}, {match: \"*/bias\", initializer: {constants: {constant: 2}}}]\n"
	spec, err := specfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float32{"deep/0/bias": 1, "deep/1/bias": 1, "logit/bias": 2}
	for _, v := range modelspec.Variables(spec) {
		if w, named := want[v.Name]; named && modelspec.InitVariable(spec, v)[0] != w {
			t.Errorf("%s starts as %v, want %g", v.Name, modelspec.InitVariable(spec, v), w)
		}
	}
}

// A layer, and a variable, may have any name that does not become another's.
func TestNamesOfLayers(t *testing.T) {
	for _, name := range []string{"input", "label", "score", "loss", "rows of input", "gradient 0", "matmul_3"} {
		spec := modelspec.MovieRanking()
		spec.Layers[0].Name = name
		if err := modelspec.Trainable(spec); err != nil {
			t.Errorf("a layer called %q: %v", name, err)
		}
	}
	text := strings.Replace(strings.Replace(deep, "name: pairs, fm: {}", "name: deep/0, units: 1", 1), "[w, pairs, deep]", "[w, deep/0, deep]", 1)
	if _, err := specfile.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), `line 16: layer "deep"`) {
		t.Errorf("two variables of one name: %v", err)
	}
}

// The old form and the new one are one computation: a file of dense layers, and its tasks and
// outputs written out, have the same variables.
func TestTheOldFormWrittenOut(t *testing.T) {
	old := modelspec.MovieRanking()
	wide := proto.CloneOf(old)
	wide.Outputs = []*model.Output{{Name: "input", Slices: []string{"*"}}}
	wide.Tasks = []*model.Task{{Name: "score", Logit: "dense_2"}}
	a, err := modelspec.Compile(old)
	if err != nil {
		t.Fatal(err)
	}
	b, err := modelspec.Compile(wide)
	if err != nil {
		t.Fatal(err)
	}
	shown := func(m *modelspec.Model) (s []string) {
		for _, n := range m.Train.Nodes() {
			s = append(s, fmt.Sprint(n.Name, n.Op, n.In, n.Shape))
		}
		return s
	}
	if diff := cmp.Diff(shown(a), shown(b)); diff != "" {
		t.Error(diff)
	}
}

// Each kind of layer and each activation, by the shape that it gives and the variables that it has.
func TestKindsOfLayers(t *testing.T) {
	for _, tc := range []struct{ layer, shape, variables string }{
		{"units: 3, inputs: [v]", "[n 3]", "x/kernel [8 3], x/bias [3]"},
		{"mlp: {units: [3, 2], activation: PRELU}, inputs: [v]", "[n 2]", "x/0/kernel [8 3], x/0/bias [3], x/0/alpha [3], x/1/kernel [3 2], x/1/bias [2]"},
		{"add: {bias: true}, inputs: [v, v]", "[n 2 4]", "x/bias [4]"},
		{"mul: {}, inputs: [v, v]", "[n 2 4]", ""},
		{"dot: {}, inputs: [v, v]", "[n 1]", ""},
		{"fm: {}, inputs: [v]", "[n 1]", ""},
		{"ffm: {}, inputs: [v]", "[n 1]", ""},
		{"cross: {depth: 1}, inputs: [v, w]", "[n 9]", "x/0/kernel [9 9], x/0/bias [9]"},
		{"cross: {depth: 2, rank: 2}, inputs: [v]", "[n 8]", "x/0/u [8 2], x/0/v [2 8], x/0/bias [8], x/1/u [8 2], x/1/v [2 8], x/1/bias [8]"},
		{"norm: {}, inputs: [v]", "[n 2 4]", "x/gain [4], x/shift [4]"},
		{"norm: {type: L2}, inputs: [v]", "[n 2 4]", ""},
		{"pool: {}, inputs: [v]", "[n 4]", ""},
		{"pool: {type: MEAN}, inputs: [v]", "[n 4]", ""},
		{"attention: {units: [3], activation: PRELU}, inputs: [one, v]", "[n 4]", "x/0/query [4 3], x/0/key [4 3], x/0/product [4 3], x/0/bias [3], x/0/alpha [3], x/1/kernel [3 1], x/1/bias [1]"},
		{"attention: {raw: true}, activation: PRELU, inputs: [one, v]", "[n 4]", "x/0/query [4 1], x/0/key [4 1], x/0/product [4 1], x/0/bias [1], x/alpha [4]"},
		{"gru: {units: 3}, inputs: [v]", "[n 3]", "x/gates/kernel [4 6], x/gates/bias [6], x/gates/recurrent [3 6], x/candidate/kernel [4 3], x/candidate/bias [3], x/candidate/recurrent [3 3]"},
		{"augru: {units: 3}, inputs: [v, one_by_one]", "[n 3]", "x/gates/kernel [4 6], x/gates/bias [6], x/gates/recurrent [3 6], x/candidate/kernel [4 3], x/candidate/bias [3], x/candidate/recurrent [3 3]"},
		{"mmoe: {experts: 2, units: [3, 2], tasks: 1}, inputs: [v]", "[n 2]", "x/expert_0/0/kernel [8 3], x/expert_0/0/bias [3], x/expert_0/1/kernel [3 2], x/expert_0/1/bias [2], " +
			"x/expert_1/0/kernel [8 3], x/expert_1/0/bias [3], x/expert_1/1/kernel [3 2], x/expert_1/1/bias [2], x/gate_0 [8 2]"},
		{"ple: {levels: 2, experts: 1, shared: 1, units: [2], tasks: 1}, inputs: [v]", "[n 2]", "x/0/shared/expert_0/0/kernel [8 2], x/0/shared/expert_0/0/bias [2], " +
			"x/0/task_0/expert_0/0/kernel [8 2], x/0/task_0/expert_0/0/bias [2], x/0/task_0/gate [8 2], x/0/shared/gate [8 2], " +
			"x/1/shared/expert_0/0/kernel [2 2], x/1/shared/expert_0/0/bias [2], x/1/task_0/expert_0/0/kernel [2 2], x/1/task_0/expert_0/0/bias [2], x/1/task_0/gate [2 2]"},
		{"activate: {}, activation: RELU, inputs: [v]", "[n 2 4]", ""},
		{"activate: {}, activation: SIGMOID, inputs: [v]", "[n 2 4]", ""},
		{"activate: {}, activation: TANH, inputs: [v]", "[n 2 4]", ""},
		{"activate: {}, activation: SILU, inputs: [v]", "[n 2 4]", ""},
		{"activate: {}, activation: GELU, inputs: [v]", "[n 2 4]", ""},
		{"activate: {}, activation: LEAKY_RELU, inputs: [v]", "[n 2 4]", ""},
		{"activate: {}, activation: PRELU, inputs: [v]", "[n 2 4]", "x/alpha [4]"},
	} {
		text := strings.Replace(deep, "- {name: logit, add: {bias: true}, inputs: [w, pairs, deep]}",
			"- {name: one, units: 4, inputs: [w]}\n- {name: one_by_one, units: 2, inputs: [one]}\n- {name: x, "+tc.layer+"}\n- {name: last, units: 1, inputs: [x, one_by_one]}\n- {name: logit, add: {}, inputs: [w, pairs, deep, last]}", 1)
		spec, err := specfile.Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", tc.layer, err)
			continue
		}
		m, err := modelspec.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		var variables []string
		for _, v := range m.Variables {
			if strings.HasPrefix(v.Name, "x/") {
				variables = append(variables, fmt.Sprint(v.Name, " ", v.Shape))
			}
			first := modelspec.InitVariable(spec, v)
			if want, fixed := map[string]float32{"x/gates/bias": 1, "x/candidate/bias": 0, "x/gain": 1, "x/shift": 0, "x/bias": 0, "x/alpha": 0.25, "x/0/alpha": 0.25}[v.Name]; fixed && (first[0] != want || first[len(first)-1] != want) {
				t.Errorf("%s: %s starts as %v", tc.layer, v.Name, first)
			}
		}
		if got := strings.Join(variables, ", "); got != tc.variables {
			t.Errorf("%s: variables %s, want %s", tc.layer, got, tc.variables)
		}
		for _, l := range m.Layers {
			if l.Name == "x" && l.Shapes[0].String() != tc.shape {
				t.Errorf("%s: shape %v, want %s", tc.layer, l.Shapes[0], tc.shape)
			}
		}
	}
}

// What corrects an in-batch softmax is an estimate of how often a candidate comes, and says so where it is not.
func TestLogQ(t *testing.T) {
	if _, err := specfile.Parse([]byte(towers)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, from, to, says string }{
		{"no output", "log_q: every", "log_q: often", `line 20: task "similarity": its log_q "often" is no output`},
		{"another segment", "log_q: every", "log_q: m", `line 20: task "similarity": its log_q "m" is no estimate`},
		{"another optimizer", ", optimizer: {batch_softmax: {learning_rate: 0.1}}", "", `line 20: task "similarity": its log_q "every" is no estimate`},
		{"another loss", "loss: IN_BATCH_SOFTMAX, log_q: every", "loss: CROSS_ENTROPY, label: {field: click, threshold: 1}, log_q: every", `line 20: task "similarity" has log_q and the loss CROSS_ENTROPY`},
	} {
		if _, err := specfile.Parse([]byte(strings.Replace(towers, tc.from, tc.to, 1))); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// The files of docs/models are what the guide says of them.
func TestReadyModels(t *testing.T) {
	files, err := filepath.Glob("../../../docs/models/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	guide, err := os.ReadFile("../../../docs/guides/models.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		spec, err := specfile.Read(file, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := modelspec.Trainable(spec); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if !strings.Contains(string(guide), filepath.Base(file)) {
			t.Errorf("the guide does not name %s", filepath.Base(file))
		}
	}
}

// Ranges of ranges and of large elements end at a bound, not with the memory.
func TestRangesAreBounded(t *testing.T) {
	many := strings.Repeat(`{name: "s", dim: 1}, `, 20_000)
	text := strings.Replace(deep, "- {name: movie, slot: 2, table: movie}", `- {name: "C{1..4096}", slot: 2, table: movie, x: [`+many+`]}`, 1)
	if _, err := specfile.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "declare less") {
		t.Errorf("%.200v", err)
	}
}

// The first group that matches gives a variable its optimizer; what the group leaves out is the
// model's.
func TestOptimizersOfGroups(t *testing.T) {
	text := deep + `dense_learning_rate: {constant: 0.5}
variables:
- {match: "deep/0/*", optimizer: {sgd: {learning_rate: 2}}}
- {match: "deep/1/kernel", learning_rate: {constant: 4}}
- {match: "*/bias", initializer: {ones: {}}}
`
	spec, err := specfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := modelspec.Trainable(spec); err != nil {
		t.Fatal(err)
	}
	moved := func(o optim.Optimizer) float32 {
		w, slots := []float32{0}, make([]float32, o.SlotSize(1))
		o.InitSlots(slots)
		o.Update(w, slots, []float32{1}, optim.Step{})
		return -w[0]
	}
	model := moved(modelspec.DenseOptimizer(spec)) // adagrad at a rate of 0.5
	for name, want := range map[string]float32{"deep/0/kernel": 2, "deep/0/bias": 2, "deep/1/kernel": 8 * model, "deep/1/bias": model, "logit/bias": model} {
		if got := moved(modelspec.VariableOptimizer(spec, name)); math.Abs(float64(got/want-1)) > 1e-5 {
			t.Errorf("%s moves by %g, want %g", name, got, want)
		}
	}
	for group, says := range map[string]string{
		`{match: "deep/*/*", optimizer: {sgd: {}}}`:                                                                      "variables[0]",
		`{match: "deep/*/*", learning_rate: {constant: -1}}`:                                                             "variables[0]",
		`{match: "deep/*/*", optimizer: {batch_softmax: {}}}`:                                                            "cannot take a variable",
		`{match: "deep/*/*", optimizer: {adagrad: {learning_rate: 0.1, warmup_steps: 5}}, learning_rate: {constant: 1}}`: "warmup_steps",
	} {
		spec, err := specfile.Parse([]byte(deep + "variables: [" + group + "]\n"))
		if err == nil {
			err = modelspec.Trainable(spec)
		}
		if err == nil || !strings.Contains(fmt.Sprint(err), says) && says != "variables[0]" {
			t.Errorf("%s: %v", group, err)
		}
	}
}
