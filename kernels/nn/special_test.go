package nn_test

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
)

// Functions of numbers that have no neighbours.
func TestActivationsAtTheEdges(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x := []float32{0, -1, -2, inf, -inf, nan, 1000, -1000}
	for _, tc := range []struct {
		op   graph.Op
		want []float32 // 7 stands for what is not looked at
	}{
		{graph.SiLU{}, []float32{0, 7, 7, inf, nan, nan, 1000, 0}},
		{graph.GELU{}, []float32{0, 7, 7, inf, nan, nan, 1000, 0}},
		{graph.Exp{}, []float32{1, 7, 7, inf, 0, nan, inf, 0}},
		{graph.Log1p{}, []float32{0, -inf, nan, inf, nan, nan, 7, nan}},
		{graph.Sqrt{}, []float32{0, nan, nan, inf, nan, nan, 7, nan}},
		{graph.Reciprocal{}, []float32{inf, -1, -0.5, 0, 0, nan, 0.001, -0.001}},
		{graph.PReLU{}, []float32{0, -0.25, -0.5, inf, -inf, nan, 1000, -250}},
	} {
		b := &graph.Builder{}
		in := []graph.ID{b.Input("x", 1)}
		if _, ok := tc.op.(graph.PReLU); ok {
			in = append(in, b.Const(0.25, graph.Fixed(1)))
		}
		b.Output("y", b.Add("y", tc.op, in...))
		var out nn.Outputs
		if err := compile(t, b, nn.Options{}).Run(&nn.Lane{}, len(x), [][]float32{x}, &nn.Weights{}, &out); err != nil {
			t.Fatal(err)
		}
		for i, want := range tc.want {
			if got := out.Values[0][i]; want != 7 && got != want && (got == got || want == want) {
				t.Errorf("%s of %g is %g, want %g", tc.op.Name(), x[i], got, want)
			}
		}
	}
}

// Lengths say what of a row counts; the rest is neither read nor passed on.
func TestSoftmaxByLengths(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x := []float32{0, 0, nan, 0, 0, 0, 0, 0, 0, 5, -inf, 5, inf, 0, 0, -inf, -inf, 0, 1, 2, 3, nan, 0, 0}
	lengths := []float32{2, 7, 0.5, 3, 3, 2, nan, 2}
	want := []float32{0.5, 0.5, 0, 1. / 3, 1. / 3, 1. / 3, 1, 0, 0, 0.5, 0, 0.5, nan, nan, nan, nan, nan, 0, 0, 0, 0, nan, nan, 0}
	b := &graph.Builder{}
	y := b.Add("y", graph.Softmax{Lengths: true}, b.Input("x", 3), b.Input("lengths", 1))
	b.Output("y", y)
	b.Output("dx", b.Add("dx", graph.SoftmaxGrad{Lengths: true}, b.Input("dy", 3), y, graph.ID(1)))
	dy := make([]float32, len(x))
	for i := range dy {
		if dy[i] = float32(i); want[i] == 0 {
			dy[i] = nan // but at −Inf, whose gradient is 0 times what comes
		}
	}
	dy[10] = 1
	var out nn.Outputs
	if err := compile(t, b, nn.Options{}).Run(&nn.Lane{}, len(lengths), [][]float32{x, lengths, dy}, &nn.Weights{}, &out); err != nil {
		t.Fatal(err)
	}
	sameBits(t, "softmax", out.Values[:1], [][]float32{want})
	for i, w := range want {
		if d := out.Values[1][i]; w == 0 && d != 0 || (w != w) != (d != d) {
			t.Errorf("gradient %d is %g where softmax is %g", i, d, w)
		}
	}
}

// Rows of zeros, and rows with what is no number.
func TestNormsAtTheEdges(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x := []float32{0, 0, 3, 4, inf, 1, nan, 1, 1e-8, 0}
	for _, tc := range []struct {
		op   graph.Op
		want []float32
	}{
		{graph.L2Norm{Epsilon: 1e-12}, []float32{0, 0, 0.6, 0.8, nan, 0, nan, nan, 0.01, 0}},
		{graph.Normalize{Epsilon: 0.75}, []float32{0, 0, -0.5, 0.5, nan, nan, nan, nan, 5.7735027e-09, -5.7735027e-09}},
	} {
		b := &graph.Builder{}
		b.Output("y", b.Add("y", tc.op, b.Input("x", 2)))
		var out nn.Outputs
		if err := compile(t, b, nn.Options{}).Run(&nn.Lane{}, len(x)/2, [][]float32{x}, &nn.Weights{}, &out); err != nil {
			t.Fatal(err)
		}
		sameBits(t, tc.op.Name(), out.Values, [][]float32{tc.want})
	}
}
