package modelspec_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

// oracleCase is one optimizer and what it is compared with.
type oracleCase struct {
	spec      string
	slots     bool           // its slots are compared, not its weights
	Op        string         `json:"op"`
	Params    map[string]any `json:"params"`
	Weights   []float32      `json:"weights"`
	Gradients [][]float32    `json:"gradients"`
	Rates     []float32      `json:"rates"`
}

type params = map[string]any

// lived gives each case weights to start from and a life of gradients and rates.
func lived(r *rand.Rand, cases []*oracleCase, dim, steps int) {
	for _, c := range cases {
		if c.Params == nil {
			c.Params = params{}
		}
		for range dim {
			c.Weights = append(c.Weights, r.Float32()-.5)
		}
		if c.Op == "ftrl" {
			clear(c.Weights) // its weights follow from its slots
		}
		rate := .01 + r.Float32()/20
		if c.Op == "rmsprop" {
			rate = .03 // its own, whatever the step says
		}
		for range steps {
			g := make([]float32, dim)
			for i := range g {
				g[i] = float32(r.NormFloat64() * math.Pow(10, float64(r.IntN(4)-3)))
			}
			c.Gradients, c.Rates = append(c.Gradients, g), append(c.Rates, rate)
			if c.Op != "momentum" && c.Op != "rmsprop" { // theirs is the same only while the rate is
				rate = .01 + r.Float32()/20
			}
		}
	}
}

// answer runs a script with its arguments on in, and decodes what it says into out.
func answer(t *testing.T, python string, script []string, in, out any) {
	t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, script...)
	var said, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(text), &said, &errs, time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", script[0], err, errs.String())
	}
	if err := json.Unmarshal(said.Bytes(), out); err != nil {
		t.Fatal(err)
	}
}

// declared is the optimizer that a spec's text names.
func declared(t *testing.T, text string, dim int) optim.Optimizer {
	t.Helper()
	o := &model.Optimizer{}
	if err := protojson.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	segments, err := modelspec.Segments(&model.Table{
		Name: "t", Dim: uint32(dim), Optimizer: o, Initializer: &model.Initializer{Kind: &model.Initializer_Zeros{Zeros: &model.Zeros{}}},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return segments[0].Optimizer
}

// follows lives each case's life with our optimizer, and holds it beside theirs. The
// roundings of all steps may add up to bound of the way gone and left.
func follows(t *testing.T, cases []*oracleCase, theirs [][][]float64, bound float64) {
	t.Helper()
	if len(theirs) != len(cases) {
		t.Fatalf("%d answers to %d cases", len(theirs), len(cases))
	}
	for k, c := range cases {
		dim := len(c.Weights)
		ours := declared(t, c.spec, dim)
		slots := make([]float32, ours.SlotSize(dim))
		ours.InitSlots(slots)
		seen := c.Weights
		if c.slots {
			seen = slots
		}
		way, worst := make([]float64, dim), 0.
		for step, g := range c.Gradients {
			before := append([]float32(nil), seen...)
			ours.Update(c.Weights, slots, g, optim.Step{LearningRate: c.Rates[step], GlobalStep: int64(step)})
			for i, x := range seen {
				way[i] += math.Abs(float64(x - before[i]))
				off := math.Abs(float64(x)-theirs[k][step][i]) / (way[i] + math.Abs(float64(x)) + 1e-6)
				if worst = max(worst, off); !(off < bound) {
					t.Fatalf("%s, step %d, number %d: %.8g, they say %.8g", c.spec, step, i, x, theirs[k][step][i])
				}
			}
		}
		t.Logf("%-80s within %.1e", c.spec, worst)
	}
}

type decayCase struct {
	Initial    float32 `json:"initial"`
	End        float32 `json:"end"`
	Power      float32 `json:"power"`
	DecaySteps int64   `json:"decay_steps"`
	Cycle      bool    `json:"cycle"`
	Steps      []int64 `json:"steps"`
}

// TensorFlow's own kernels apply the same gradients to the same weights, wherever both
// define the same rule: sgd, adagrad, adadelta, adam, amsgrad, ftrl and momentum. Its
// rmsprop takes the root of n + epsilon where ours adds 1 to the root of n, so there it is
// the n that are compared; PyTorch has ours. The others do not exist there.
func TestOptimizersAgainstTensorFlow(t *testing.T) {
	python := oracle.Python(t)
	cases := []*oracleCase{
		{spec: `{"sgd":{"learningRate":1}}`, Op: "sgd"},
		{spec: `{"adagrad":{"learningRate":1,"initialAccumulatorValue":0.1}}`, Op: "adagrad", Params: params{"accum": .1}},
		{spec: `{"adadelta":{"averagingRatio":0.9,"epsilon":0.01}}`, Op: "adadelta", Params: params{"rho": .9, "epsilon": .01}},
		{spec: `{"adadelta":{"averagingRatio":0.95,"epsilon":1e-6}}`, Op: "adadelta", Params: params{"rho": .95, "epsilon": 1e-6}},
		{spec: `{"adam":{}}`, Op: "adam", Params: params{"beta1": .9, "beta2": .99, "epsilon": .01, "nesterov": false}},
		{spec: `{"adam":{"beta2":0.999,"epsilon":1e-7}}`, Op: "adam", Params: params{"beta1": .9, "beta2": .999, "epsilon": 1e-7, "nesterov": false}},
		{spec: `{"adam":{"useNesterov":true}}`, Op: "adam", Params: params{"beta1": .9, "beta2": .99, "epsilon": .01, "nesterov": true}},
		{spec: `{"amsgrad":{"beta1":0.8}}`, Op: "amsgrad", Params: params{"beta1": .8, "beta2": .99, "epsilon": .01}},
		{spec: `{"ftrl":{}}`, Op: "ftrl", Params: params{"accum": .1, "l1": 0, "l2": 0, "beta": 0}},
		{spec: `{"ftrl":{"l1":0.3,"l2":0.5}}`, Op: "ftrl", Params: params{"accum": .1, "l1": .3, "l2": .5, "beta": 0}},
		{spec: `{"ftrl":{"l1":0.1,"beta":1,"initialAccumulatorValue":1}}`, Op: "ftrl", Params: params{"accum": 1, "l1": .1, "l2": 0, "beta": 1}},
		{spec: `{"momentum":{}}`, Op: "momentum", Params: params{"momentum": .9, "nesterov": false}},
		{spec: `{"momentum":{"momentum":0.5,"useNesterov":true}}`, Op: "momentum", Params: params{"momentum": .5, "nesterov": true}},
		{spec: `{"rmsprop":{"momentum":0.9}}`, slots: true, Op: "rmsprop", Params: params{"rho": .9, "share": 1}},
		{spec: `{"rmspropv2":{"momentum":0.75}}`, slots: true, Op: "rmsprop", Params: params{"rho": .75, "share": .25}},
	}
	lived(rand.New(rand.NewPCG(11, 12)), cases, 19, 150)
	var decays []decayCase
	for _, cycle := range []bool{false, true} {
		for _, power := range []float32{.5, 1, 2} {
			decays = append(decays, decayCase{.1, .001, power, 70, cycle, []int64{0, 1, 35, 69, 70, 71, 105, 140, 141, 100000}})
		}
	}
	decays = append(decays, decayCase{0, .05, 1, 10, false, []int64{0, 1, 5, 10, 11}}) // a warm-up
	var said struct {
		Trajectories [][][]float64
		Decays       [][]float64
	}
	answer(t, python, []string{"testdata/apply.py"}, map[string]any{"cases": cases, "decays": decays}, &said)
	follows(t, cases, said.Trajectories, 2e-6)
	if len(said.Decays) != len(decays) {
		t.Fatalf("%d answers to %d decays", len(said.Decays), len(decays))
	}
	for k, d := range decays {
		rate, err := optim.NewPolynomialDecay(optim.PolynomialDecay{Initial: d.Initial, End: d.End, Power: d.Power, Steps: d.DecaySteps, Cycle: d.Cycle})
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range d.Steps {
			if got := float64(rate.At(step)); math.Abs(got-said.Decays[k][i]) > 1e-6 {
				t.Errorf("%+v at %d: %g, TensorFlow says %g", d, step, got, said.Decays[k][i])
			}
		}
	}
}

// PyTorch applies the same gradients to the same weights, with the weight decay that
// TensorFlow's kernels do not have, and by the very rule of rmsprop and rmspropv2.
func TestOptimizersAgainstTorch(t *testing.T) {
	python := oracle.Torch(t)
	cases := []*oracleCase{
		{spec: `{"sgd":{"learningRate":1}}`, Op: "sgd"},
		{spec: `{"adagrad":{"learningRate":1,"initialAccumulatorValue":0.1,"weightDecay":0.02}}`, Op: "adagrad", Params: params{"accum": .1, "decay": .02}},
		{spec: `{"adadelta":{"weightDecay":0.02}}`, Op: "adadelta", Params: params{"rho": .9, "epsilon": .01, "decay": .02}},
		{spec: `{"adam":{"weightDecay":0.02}}`, Op: "adam", Params: params{"beta1": .9, "beta2": .99, "epsilon": .01, "decay": .02}},
		{spec: `{"adam":{"beta2":0.999,"epsilon":1e-7}}`, Op: "adam", Params: params{"beta1": .9, "beta2": .999, "epsilon": 1e-7}},
		{spec: `{"amsgrad":{"beta1":0.8,"weightDecay":0.02}}`, Op: "amsgrad", Params: params{"beta1": .8, "beta2": .99, "epsilon": .01, "decay": .02}},
		{spec: `{"momentum":{"weightDecay":0.02}}`, Op: "momentum", Params: params{"momentum": .9, "nesterov": false, "decay": .02}},
		{spec: `{"momentum":{"momentum":0.5,"useNesterov":true,"weightDecay":0.02}}`, Op: "momentum", Params: params{"momentum": .5, "nesterov": true, "decay": .02}},
		{spec: `{"rmsprop":{"learningRate":0.03}}`, Op: "rmsprop", Params: params{"momentum": .9}},
		{spec: `{"rmsprop":{"learningRate":0.03,"momentum":0.5,"weightDecay":0.02}}`, Op: "rmsprop", Params: params{"momentum": .5, "decay": .02}},
		{spec: `{"rmspropv2":{}}`, Op: "rmspropv2", Params: params{"momentum": .9}},
		{spec: `{"rmspropv2":{"momentum":0.5,"weightDecay":0.02}}`, Op: "rmspropv2", Params: params{"momentum": .5, "decay": .02}},
	}
	lived(rand.New(rand.NewPCG(13, 14)), cases, 19, 150)
	var said struct{ Trajectories [][][]float64 }
	answer(t, python, []string{"testdata/torch_apply.py"}, map[string]any{"cases": cases}, &said)
	follows(t, cases, said.Trajectories, 4e-6)
}

type sparseStep struct {
	IDs       []int64     `json:"ids"`
	Gradients [][]float32 `json:"gradients"`
	Rate      float32     `json:"rate"`
}

type sparseCase struct {
	spec    string
	Op      string       `json:"op"`
	Params  params       `json:"params"`
	Weights [][]float32  `json:"weights"`
	Steps   []sparseStep `json:"steps"`
}

// A table's rows, some of them in each step and some twice, against TensorFlow's sparse
// kernels.
func TestTablesAgainstTensorFlow(t *testing.T) {
	python := oracle.Python(t)
	cases := []*sparseCase{
		{spec: `{"sgd":{"learningRate":1}}`, Op: "sgd", Params: params{}},
		{spec: `{"adagrad":{"learningRate":1,"initialAccumulatorValue":0.1}}`, Op: "adagrad", Params: params{"accum": .1}},
		{spec: `{"adadelta":{"averagingRatio":0.95,"epsilon":1e-4}}`, Op: "adadelta", Params: params{"rho": .95, "epsilon": 1e-4}},
		{spec: `{"ftrl":{"l1":0.1,"l2":0.5,"beta":1}}`, Op: "ftrl", Params: params{"accum": .1, "l1": .1, "l2": .5, "beta": 1}},
		{spec: `{"momentum":{}}`, Op: "momentum", Params: params{"momentum": .9, "nesterov": false}},
		{spec: `{"momentum":{"useNesterov":true}}`, Op: "momentum", Params: params{"momentum": .9, "nesterov": true}},
	}
	const rows, dim, steps = 40, 21, 60
	r := rand.New(rand.NewPCG(15, 16))
	for _, c := range cases {
		for range rows {
			w := make([]float32, dim)
			for i := range w {
				if c.Op != "ftrl" {
					w[i] = r.Float32() - .5
				}
			}
			c.Weights = append(c.Weights, w)
		}
		rate := .01 + r.Float32()/20
		for range steps {
			s := sparseStep{Rate: rate}
			for range 1 + r.IntN(30) {
				g := make([]float32, dim)
				for i := range g {
					g[i] = float32(r.NormFloat64())
				}
				s.IDs, s.Gradients = append(s.IDs, int64(r.IntN(rows))), append(s.Gradients, g)
			}
			c.Steps = append(c.Steps, s)
			if c.Op != "momentum" {
				rate = .01 + r.Float32()/20
			}
		}
	}
	var said struct{ Rows [][][][]float64 }
	answer(t, python, []string{"testdata/apply.py"}, map[string]any{"tables": cases}, &said)
	if len(said.Rows) != len(cases) {
		t.Fatalf("%d answers to %d cases", len(said.Rows), len(cases))
	}
	for k, c := range cases {
		tab, err := table.New(table.Config{Name: "t", Dim: dim, Optimizer: declared(t, c.spec, dim), Initializer: table.Zeros{}})
		if err != nil {
			t.Fatal(err)
		}
		ids, flat := make([]int64, rows), []float32(nil)
		for i := range ids {
			ids[i], flat = int64(i), append(flat, c.Weights[i]...)
		}
		if err := tab.Assign(ids, flat, 0, 0); err != nil {
			t.Fatal(err)
		}
		way, got := make([]float64, rows*dim), make([]float32, rows*dim)
		for step, s := range c.Steps {
			var grads []float32
			for _, g := range s.Gradients {
				grads = append(grads, g...)
			}
			if err := tab.OptimizeAt(s.IDs, grads, 0, table.Rates{LearningRates: []float32{s.Rate}, GlobalStep: int64(step)}); err != nil {
				t.Fatal(err)
			}
			if _, err := tab.Lookup(ids, got, nil); err != nil {
				t.Fatal(err)
			}
			for i, x := range got {
				way[i] += math.Abs(float64(x - flat[i]))
				want := said.Rows[k][step][i/dim][i%dim]
				if off := math.Abs(float64(x)-want) / (way[i] + math.Abs(float64(x)) + 1e-6); !(off < 4e-6) {
					t.Fatalf("%s, step %d, row %d, weight %d: %.8g, TensorFlow says %.8g", c.spec, step, i/dim, i%dim, x, want)
				}
			}
			copy(flat, got)
		}
	}
}
