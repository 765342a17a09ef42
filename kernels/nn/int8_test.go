package nn_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/graph/graphtest"
	"github.com/monolith-go/monolith/kernels/graph/ref"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// int8Case is a tower of int8 over two inputs, with a product over the rows of each sample, and numbers for it.
func int8Case(t *testing.T, seed uint64, n int) *graphtest.Case {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 8))
	b := &graph.Builder{}
	user, item := 1+r.IntN(40), 1+r.IntN(30)
	x := b.Add("", graph.Concat{}, b.Input("user", user), b.Input("item", item))
	h := 2 * (1 + r.IntN(30))
	x = b.Add("", graph.ReLU{}, b.Dense("a", x, b.Weight("wa", user+item, h), b.Weight("ba", h), graph.INT8))
	steps := b.Add("", graph.Reshape{Dims: []int{2, h / 2}}, x)
	steps = b.Add("steps", graph.MatMul{Precision: graph.INT8}, steps, b.Weight("ws", h/2, 5))
	y := b.Add("", graph.Tanh{}, b.Add("", graph.Reshape{Dims: []int{10}}, steps))
	y = b.Dense("b", y, b.Weight("wb", 10, 3), b.Weight("bb", 3), graph.INT8)
	b.Output("a", x)
	b.Output("y", y)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	c := &graphtest.Case{Graph: g, N: n}
	drawn := func(size int) (v []float32) {
		for range size {
			v = append(v, float32(r.NormFloat64()))
		}
		return v
	}
	for _, id := range g.Inputs() {
		c.Inputs = append(c.Inputs, drawn(g.Nodes()[id].Shape.Floats(n)))
	}
	for _, id := range g.Weights() {
		c.Weights = append(c.Weights, drawn(g.Nodes()[id].Shape.Size()))
	}
	return c
}

// Products of int8 are within the reference's bound, and have the same bits fused or not, on any threads, and with what
// samples have in common computed once.
func TestInt8Programs(t *testing.T) {
	pools := []*par.Pool{nil, partest.New(t, 2), partest.New(t, 3)}
	for seed := range uint64(40) {
		n := int(seed)
		c := int8Case(t, seed, n)
		shared := []int{0, 0}
		if seed%2 == 1 {
			shared[0] = c.Graph.Nodes()[c.Graph.Inputs()[0]].Shape.Size()
			for i := 1; i < n; i++ {
				copy(c.Inputs[0][i*shared[0]:], c.Inputs[0][:shared[0]])
			}
		}
		want, err := ref.Run(c.Graph, n, graphtest.Wide(c.Inputs), graphtest.Wide(c.Weights))
		if err != nil {
			t.Fatal(err)
		}
		w, first := &nn.Weights{Values: c.Weights}, [][]float32(nil)
		for _, o := range []nn.Options{{}, {Unfused: true}} {
			p, err := nn.Compile(c.Graph, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, pool := range pools {
				var all, once nn.Outputs
				if err := p.Run(&nn.Lane{Pool: pool}, n, c.Inputs, w, &all); err != nil {
					t.Fatal(err)
				}
				if err := p.RunShared(&nn.Lane{Pool: pool}, n, c.Inputs, shared, w, &once); err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = slices.Clone(all.Values)
				}
				sameBits(t, fmt.Sprintf("seed %d, %+v", seed, o), all.Values, first)
				sameBits(t, fmt.Sprintf("seed %d, %+v, shared", seed, o), once.Values, first)
			}
		}
		for i, o := range c.Graph.Outputs() {
			for k, x := range first[i] {
				if v := want[o.ID]; !v.Holds(k, x) {
					t.Fatalf("seed %d, output %q[%d] is %g, want %g within %g", seed, o.Name, k, x, v.V[k], v.E[k])
				}
			}
		}
	}
}

func TestInt8IsForLayersByVariables(t *testing.T) {
	b := &graph.Builder{}
	x := b.Input("x", 3)
	b.Output("y", b.Add("y", graph.MatMul{Precision: graph.INT8}, x, b.Add("", graph.MatMul{Kind: graph.TN}, x, x)))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nn.Compile(g, nn.Options{}); err == nil || !strings.Contains(err.Error(), `node "y": a product of int8 by what is no variable`) {
		t.Errorf("%v", err)
	}
	for says, add := range map[string]func(b *graph.Builder, x, w graph.ID){
		"only a layer's product is of int8": func(b *graph.Builder, x, w graph.ID) {
			b.Add("y", graph.MatMul{Kind: graph.NT, Precision: graph.INT8}, x, w)
		},
		`node "y" (matmul): a product of int8 has no derivative`: func(b *graph.Builder, x, w graph.ID) {
			y := b.Add("y", graph.MatMul{Precision: graph.INT8}, x, w)
			b.Gradients(b.Add("", graph.MSE{}, y, b.Input("label", 1)), w)
		},
	} {
		b := &graph.Builder{}
		x := b.Input("x", 1)
		w := b.Weight("w", 1, 1)
		add(b, x, w)
		b.Output("x", x)
		if _, err := b.Graph(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
}
