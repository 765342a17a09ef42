package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/kernels/densetest"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

func compile(t testing.TB, b *graph.Builder, o nn.Options) *nn.Program {
	t.Helper()
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	p, err := nn.Compile(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// towerGraph is what a densetest.Tower with the loss of the trainer computes: outputs score, loss, dx and
// the gradients of kernels and biases, in order.
func towerGraph(layers []densetest.Layer, bf16 bool) *graph.Builder {
	b := &graph.Builder{}
	x, label := b.Input("x", layers[0].In), b.Input("label", 1)
	by := []graph.ID{x}
	y := x
	for i, l := range layers {
		k, bias := b.Weight(fmt.Sprintf("kernel_%d", i), l.In, l.Out), b.Weight(fmt.Sprintf("bias_%d", i), l.Out)
		by = append(by, k, bias)
		y = b.Dense(fmt.Sprintf("dense_%d", i), y, k, bias, map[bool]graph.Precision{true: graph.BF16}[bf16])
		if i == len(layers)-1 {
			break
		}
		switch l.Activation {
		case densetest.ActReLU:
			y = b.Add("", graph.ReLU{}, y)
		case densetest.ActSigmoid:
			y = b.Add("", graph.Sigmoid{}, y)
		}
	}
	b.Output("logit", y)
	b.Output("score", b.Add("score", graph.Sigmoid{}, y))
	loss := b.Add("loss", graph.CrossEntropy{}, y, label)
	b.Output("loss", loss)
	for i, d := range b.Gradients(b.Add("sum", graph.TimesBatch{}, loss), by...) {
		b.Output(fmt.Sprintf("gradient_%d", i), d)
	}
	return b
}

// towerStep is a step of the trainer on densetest.Tower: logits, scores, loss, dx and gradients.
func towerStep(t testing.TB, tw *densetest.Tower, ws *densetest.Workspace, params [][]float32, x, labels []float32) [][]float32 {
	t.Helper()
	n := len(labels)
	logits, err := tw.Forward(params, x, n, ws)
	if err != nil {
		t.Fatal(err)
	}
	out := [][]float32{append([]float32(nil), logits...), make([]float32, n), nil, make([]float32, len(x))}
	for i, z := range logits {
		out[1][i] = densetest.Sigmoid(z)
	}
	d := make([]float32, n)
	out[2] = []float32{densetest.SigmoidCrossEntropy(logits, labels, d)}
	for i := range d {
		d[i] *= float32(n)
	}
	for _, p := range params {
		out = append(out, make([]float32, len(p)))
	}
	if err := tw.Backward(params, ws, d, out[4:], out[3]); err != nil {
		t.Fatal(err)
	}
	return out
}

// sameBits reports the first difference. One NaN is as good as another.
func sameBits(t testing.TB, what string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Fatalf("%s: value %d has %d floats, want %d", what, i, len(got[i]), len(want[i]))
		}
		for j, v := range want[i] {
			if x := got[i][j]; math.Float32bits(x) != math.Float32bits(v) && (x == x || v == v) {
				t.Fatalf("%s: value %d[%d] is %g (%#x), want %g (%#x)", what, i, j, got[i][j], math.Float32bits(got[i][j]), v, math.Float32bits(v))
			}
		}
	}
}

func draw(r *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * scale)
	}
	return x
}

var movies = []densetest.Layer{{In: 64, Out: 256, Activation: densetest.ActReLU}, {In: 256, Out: 64, Activation: densetest.ActReLU}, {In: 64, Out: 1, Activation: densetest.ActSigmoid}}

var towers = map[string][]densetest.Layer{
	"movies": movies,
	"mixed": {{In: 19, Out: 33, Activation: densetest.ActSigmoid}, {In: 33, Out: 7, Activation: densetest.ActLinear}, {In: 7, Out: 40, Activation: densetest.ActReLU},
		{In: 40, Out: 1, Activation: densetest.ActSigmoid}},
	"logistic": {{In: 5, Out: 1, Activation: densetest.ActSigmoid}},
}

// The program of a tower learns with the tower's bits: the same scores, losses and gradients of each step,
// hence the same weights after several.
func TestTowersBits(t *testing.T) {
	pools := []*par.Pool{nil, partest.New(t, 2), partest.New(t, 3)}
	sizes := []int{0, 1, 7, 14, 15, 33, 512, 513, 4096}
	if testing.Short() || raceEnabled {
		sizes = []int{0, 1, 15, 100}
	}
	for name, layers := range towers {
		for _, bf16 := range []bool{false, true} {
			tw, err := densetest.New(layers)
			if err != nil {
				t.Fatal(err)
			}
			fused := compile(t, towerGraph(layers, bf16), nn.Options{})
			unfused := compile(t, towerGraph(layers, bf16), nn.Options{Unfused: true})
			for _, n := range sizes {
				r := rand.New(rand.NewPCG(uint64(n), 1))
				var params [][]float32
				for _, l := range layers {
					params = append(params, draw(r, l.In*l.Out, 1/math.Sqrt(float64(l.In))), draw(r, l.Out, 1))
				}
				ws := &densetest.Workspace{Pool: pools[1], BF16: bf16}
				lanes := []*nn.Lane{{Pool: pools[0]}, {Pool: pools[1]}, {Pool: pools[2]}}
				w, out := &nn.Weights{Values: params}, nn.Outputs{}
				for step := range 3 {
					x, labels := draw(r, n*layers[0].In, 1), make([]float32, n)
					for i := range labels {
						labels[i] = float32(r.IntN(2))
					}
					want := towerStep(t, tw, ws, params, x, labels)
					for i, lane := range lanes {
						for _, p := range []*nn.Program{fused, unfused} {
							what := fmt.Sprintf("%s, bf16 %v, %d samples, step %d, pool %d, fused %v", name, bf16, n, step, i, p == fused)
							if err := p.Run(lane, n, [][]float32{x, labels}, w, &out); err != nil {
								t.Fatalf("%s: %v", what, err)
							}
							sameBits(t, what, out.Values, want)
						}
					}
					for i, p := range params {
						for j, d := range want[4+i] {
							p[j] -= float32(0.01*d) / float32(max(n, 1))
						}
					}
					w.Reset(uint64(step), params)
				}
			}
		}
	}
}

// What a run of the movie tower does: three products forwards, eight backwards, the activations and
// masks within them. It is what densetest.Tower calls.
func TestTowersSteps(t *testing.T) {
	want := []string{
		"dense_0 matmul+relu", "dense_1 matmul+relu", "dense_2 matmul", "score sigmoid", "loss cross_entropy",
		"const", "times_batch", "cross_entropy_grad", "mul_scalar",
		"sum_rows", "matmul_tn", "matmul_nt+mask",
		"sum_rows", "matmul_tn", "matmul_nt+mask",
		"sum_rows", "matmul_tn", "matmul_nt",
	}
	p := compile(t, towerGraph(movies, false), nn.Options{})
	var got []string
	flops := 0.0
	for _, s := range p.Steps(512) {
		name := s.Op.Name()
		if m, ok := s.Op.(graph.MatMul); ok {
			name += map[graph.Finish]string{graph.ToReLU: "+relu", graph.ToMask: "+mask"}[m.Finish]
			flops += s.Cost.FLOPs
		}
		if s.Name[0] == 'd' || s.Name == "score" || s.Name == "loss" {
			name = s.Name + " " + name
		}
		got = append(got, name)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("steps\n%q, want\n%q", got, want)
	}
	tw, err := densetest.New(movies)
	if err != nil {
		t.Fatal(err)
	}
	if _, both := tw.FLOPs(); math.Abs(flops/(512*both)-1) > 0.02 {
		t.Errorf("%g FLOPs a sample in products, the tower has %g", flops/512, both)
	}
}
