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
	"github.com/monolith-go/monolith/internal/modelspec"
	"github.com/monolith-go/monolith/internal/oracle"
	"github.com/monolith-go/monolith/kernels/optim"
)

type tensorflowCase struct {
	spec      string
	Op        string         `json:"op"`
	Params    map[string]any `json:"params"`
	Weights   []float32      `json:"weights"`
	Gradients [][]float32    `json:"gradients"`
	Rates     []float32      `json:"rates"`
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
// define the same rule: sgd, adagrad, adadelta, adam, amsgrad, ftrl and momentum. 150
// steps of float32 roundings are allowed to add up to 2e-6 of the way gone and left.
// Its rmsprop takes the root of n + epsilon where ours adds 1 to the root of n; the
// others do not exist there.
func TestOptimizersAgainstTensorFlow(t *testing.T) {
	python := oracle.Python(t)
	type params = map[string]any
	cases := []*tensorflowCase{
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
	}
	const dim, steps = 19, 150
	r := rand.New(rand.NewPCG(11, 12))
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
		for range steps {
			g := make([]float32, dim)
			for i := range g {
				g[i] = float32(r.NormFloat64() * math.Pow(10, float64(r.IntN(4)-3)))
			}
			c.Gradients, c.Rates = append(c.Gradients, g), append(c.Rates, rate)
			if c.Op != "momentum" { // theirs is the same only while the rate is
				rate = .01 + r.Float32()/20
			}
		}
	}
	var decays []decayCase
	for _, cycle := range []bool{false, true} {
		for _, power := range []float32{.5, 1, 2} {
			decays = append(decays, decayCase{.1, .001, power, 70, cycle, []int64{0, 1, 35, 69, 70, 71, 105, 140, 141, 100000}})
		}
	}
	decays = append(decays, decayCase{0, .05, 1, 10, false, []int64{0, 1, 5, 10, 11}}) // a warm-up

	in, err := json.Marshal(map[string]any{"cases": cases, "decays": decays})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/apply.py")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(in), &out, &errs, time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("TensorFlow: %v\n%s", err, errs.String())
	}
	var said struct {
		Trajectories [][][]float32
		Decays       [][]float64
	}
	if err := json.Unmarshal(out.Bytes(), &said); err != nil {
		t.Fatal(err)
	}
	if len(said.Trajectories) != len(cases) || len(said.Decays) != len(decays) {
		t.Fatalf("TensorFlow answered %d and %d of %d and %d", len(said.Trajectories), len(said.Decays), len(cases), len(decays))
	}
	for k, c := range cases {
		o := &model.Optimizer{}
		if err := protojson.Unmarshal([]byte(c.spec), o); err != nil {
			t.Fatal(err)
		}
		segments, err := modelspec.Segments(&model.Table{
			Name: "t", Dim: dim, Optimizer: o, Initializer: &model.Initializer{Kind: &model.Initializer_Zeros{Zeros: &model.Zeros{}}},
		}, 1)
		if err != nil {
			t.Fatal(err)
		}
		ours, slots := segments[0].Optimizer, make([]float32, segments[0].Optimizer.SlotSize(dim))
		ours.InitSlots(slots)
		way, worst := make([]float64, dim), 0.
		for step := range steps {
			before := append([]float32(nil), c.Weights...)
			ours.Update(c.Weights, slots, c.Gradients[step], optim.Step{LearningRate: c.Rates[step], GlobalStep: int64(step)})
			for i, x := range c.Weights {
				way[i] += math.Abs(float64(x - before[i]))
				off := math.Abs(float64(x-said.Trajectories[k][step][i])) / (way[i] + math.Abs(float64(x)) + 1e-6)
				if worst = max(worst, off); !(off < 2e-6) {
					t.Fatalf("%s, step %d, weight %d: %.8g, TensorFlow says %.8g", c.spec, step, i, x, said.Trajectories[k][step][i])
				}
			}
		}
		t.Logf("%-60s within %.1e", c.spec, worst)
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
