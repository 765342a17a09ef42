package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/kernels/dense"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par"
)

// deepGraph is what a dense.DeepFM computes: outputs logit, the stack's gradient and the parameters'.
func deepGraph(fields, dim int, hidden ...int) *graph.Builder {
	b := &graph.Builder{}
	v, label := b.Input("v", fields, dim), b.Input("label", 1)
	by := []graph.ID{v}
	fm := b.Add("pairs", graph.FM{}, v)
	y, in := b.Add("", graph.Reshape{Dims: []int{fields * dim}}, v), fields*dim
	for i, units := range append(hidden, 1) {
		k, bias := b.Weight(fmt.Sprintf("kernel_%d", i), in, units), b.Weight(fmt.Sprintf("bias_%d", i), units)
		by, in = append(by, k, bias), units
		if y = b.Dense(fmt.Sprintf("dense_%d", i), y, k, bias, false); i < len(hidden) {
			y = b.Add("", graph.ReLU{}, y)
		}
	}
	y = b.Add("", graph.Add{}, y, fm)
	b.Output("logit", y)
	for i, d := range b.Gradients(b.Add("", graph.TimesBatch{}, b.Add("loss", graph.CrossEntropy{}, y, label)), by...) {
		b.Output(fmt.Sprintf("gradient_%d", i), d)
	}
	return b
}

// The program of DeepFM has dense.DeepFM's bits: logits and all gradients.
func TestDeepFMsBits(t *testing.T) {
	pools := []*par.Pool{nil, threads(t, 2), threads(t, 3)}
	for _, m := range []struct{ fields, dim int }{{26, 16}, {5, 32}, {3, 7}, {1, 1}} {
		hidden := []int{40, 9}
		old, err := dense.NewDeepFM(m.fields, m.dim, hidden...)
		if err != nil {
			t.Fatal(err)
		}
		fused := compile(t, deepGraph(m.fields, m.dim, hidden...), nn.Options{})
		unfused := compile(t, deepGraph(m.fields, m.dim, hidden...), nn.Options{Unfused: true})
		for _, n := range []int{0, 1, 15, 130} {
			r := rand.New(rand.NewPCG(uint64(n), 1))
			var params, grads [][]float32
			for _, p := range old.Params() {
				params = append(params, draw(r, p.Size(), 1/math.Sqrt(float64(m.fields*m.dim))))
				grads = append(grads, make([]float32, p.Size()))
			}
			emb, labels, demb := draw(r, n*m.fields*m.dim, 1), make([]float32, n), make([]float32, n*m.fields*m.dim)
			ws := &dense.DeepFMWorkspace{}
			logits, err := old.Forward(params, emb, nil, n, ws)
			if err != nil {
				t.Fatal(err)
			}
			want := [][]float32{append([]float32(nil), logits...), demb}
			d := make([]float32, n)
			dense.SigmoidCrossEntropy(logits, labels, d)
			for i := range d {
				d[i] *= float32(n)
			}
			if err := old.Backward(params, ws, d, grads, demb); err != nil {
				t.Fatal(err)
			}
			want = append(want, grads...)
			for i, pool := range pools {
				for _, p := range []*nn.Program{fused, unfused} {
					lane, out := &nn.Lane{Pool: pool}, nn.Outputs{}
					if err := p.Run(lane, n, [][]float32{emb, labels}, &nn.Weights{Values: params}, &out); err != nil {
						t.Fatal(err)
					}
					sameBits(t, fmt.Sprintf("%+v, %d samples, pool %d, fused %v", m, n, i, p == fused), out.Values, want)
				}
			}
		}
	}
}
