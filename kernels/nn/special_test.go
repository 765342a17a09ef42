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
