package optim_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/optim"
)

// The reference is the formula in float64, updated from the same float32 state.
func TestAdagradAgainstFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, o := range []optim.Adagrad{
		{LearningRate: 0.05, InitialAccumulator: 0.1},
		{LearningRate: 0.5, InitialAccumulator: 1e-6, WeightDecay: 0.01},
		{LearningRate: 0.01},
	} {
		const dim = 37
		w, n, g := make([]float32, dim), make([]float32, o.SlotSize(dim)), make([]float32, dim)
		if len(n) != dim {
			t.Fatalf("%d slots for %d weights", len(n), dim)
		}
		o.InitSlots(n)
		for i := range w {
			w[i] = r.Float32() - .5
		}
		for step := range 300 {
			wantW, wantN, size := make([]float64, dim), make([]float64, dim), make([]float64, dim)
			for i := range g {
				g[i] = float32(r.NormFloat64() * math.Pow(10, float64(r.IntN(6)-4)))
				d := float64(g[i]) + float64(o.WeightDecay)*float64(w[i])
				wantN[i] = float64(n[i]) + d*d
				move := float64(o.LearningRate) / math.Sqrt(wantN[i]) * d
				wantW[i] = float64(w[i]) - move
				size[i] = math.Abs(float64(w[i])) + math.Abs(move) // what rounding is relative to
			}
			o.Update(w, n, g, optim.Step{})
			for i := range w {
				if math.Abs(float64(w[i])-wantW[i]) > 4e-7*size[i] || math.Abs(float64(n[i])-wantN[i]) > 4e-7*wantN[i] {
					t.Fatalf("%+v step %d weight %d: %g, %g; want %g, %g", o, step, i, w[i], n[i], wantW[i], wantN[i])
				}
			}
		}
	}
}

func TestFirstSteps(t *testing.T) {
	w, n := []float32{1, 1}, []float32{.1, .1}
	optim.Adagrad{LearningRate: 0.05, InitialAccumulator: 0.1}.Update(w, n, []float32{1, 0}, optim.Step{})
	// 0.05 / sqrt(1.1) = 0.0476731
	if !near(float64(w[0]), 1-0.0476731, 1e-6) || w[1] != 1 || n[0] != 1.1 || n[1] != .1 {
		t.Errorf("adagrad: %v %v", w, n)
	}
	w = []float32{1, 2}
	optim.SGD{LearningRate: 0.5}.Update(w, nil, []float32{1, -2}, optim.Step{})
	if w[0] != .5 || w[1] != 3 {
		t.Errorf("sgd: %v", w)
	}
}

// With an accumulator of 0 the formula is 0/0 where the gradient vanishes.
func TestAdagradLeavesUntouchedWeightsAlone(t *testing.T) {
	o := optim.Adagrad{LearningRate: 0.1}
	w, n := []float32{3, 3, 3}, []float32{0, 0, 0}
	o.Update(w, n, []float32{0, 1e-30, 2}, optim.Step{}) // 1e-30 squared is 0 in float32
	if w[0] != 3 || w[1] != 3 || !near(float64(w[2]), 2.9, 1e-6) {
		t.Errorf("%v", w)
	}
}

func TestConstructorsRefuse(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tc := range []struct {
		lr, acc, wd float32
		says        string
	}{
		{0, .1, 0, "learning rate"}, {-1, .1, 0, "learning rate"}, {nan, .1, 0, "learning rate"}, {inf, .1, 0, "learning rate"},
		{1, -.1, 0, "accumulator"}, {1, nan, 0, "accumulator"}, {1, inf, 0, "accumulator"},
		{1, .1, -1, "weight decay"}, {1, .1, nan, "weight decay"}, {1, .1, inf, "weight decay"},
	} {
		if _, err := optim.NewAdagrad(tc.lr, tc.acc, tc.wd); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v", tc, err)
		}
		if tc.says == "learning rate" {
			if _, err := optim.NewSGD(tc.lr); err == nil {
				t.Errorf("sgd took %g", tc.lr)
			}
		}
	}
	if o, err := optim.NewAdagrad(.05, .1, .01); err != nil || o != (optim.Adagrad{.05, .1, .01}) {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestWrongLengthsPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"adagrad slots": func() {
			optim.Adagrad{LearningRate: 1}.Update(make([]float32, 2), make([]float32, 1), make([]float32, 2), optim.Step{})
		},
		"adagrad gradients": func() {
			optim.Adagrad{LearningRate: 1}.Update(make([]float32, 2), make([]float32, 2), make([]float32, 3), optim.Step{})
		},
		"sgd slots": func() {
			optim.SGD{LearningRate: 1}.Update(make([]float32, 2), make([]float32, 1), make([]float32, 2), optim.Step{})
		},
		"sgd gradients": func() { optim.SGD{LearningRate: 1}.Update(make([]float32, 2), nil, make([]float32, 1), optim.Step{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func near(got, want, tol float64) bool { return math.Abs(got-want) <= tol*math.Abs(want) }

func BenchmarkAdagrad(b *testing.B) {
	o := optim.Adagrad{LearningRate: .05, InitialAccumulator: .1}
	w, n, g := make([]float32, 1<<14), make([]float32, 1<<14), make([]float32, 1<<14)
	o.InitSlots(n)
	for b.Loop() {
		o.Update(w, n, g, optim.Step{})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(w)), "ns/weight")
}
