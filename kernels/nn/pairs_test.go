package nn_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/graph/graphtest"
	"github.com/monolith-go/monolith/kernels/graph/ref"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

func program(t testing.TB, p graphtest.Pair, layer graphtest.Layer, n int) (*graphtest.Case, *nn.Program) {
	t.Helper()
	c, err := p.Case(layer, n)
	if err != nil {
		t.Fatal(err)
	}
	out, err := nn.Compile(c.Graph, nn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c, out
}

// An operation of a model's size is within its bound, with one thread and with two the same bits, and its
// run takes no memory.
func TestHandWritten(t *testing.T) {
	pool := partest.New(t, 2)
	for _, p := range graphtest.Pairs(true) {
		t.Run(p.Name, func(t *testing.T) {
			n := 3
			c, prog := program(t, p, p.Fused, n)
			want, err := ref.Run(c.Graph, n, graphtest.Wide(c.Inputs), graphtest.Wide(c.Weights))
			if err != nil {
				t.Fatal(err)
			}
			var first [][]float32
			for _, pool := range []*par.Pool{nil, pool} {
				lane, w, out := &nn.Lane{Pool: pool}, &nn.Weights{Values: c.Weights}, nn.Outputs{}
				if allocs := testing.AllocsPerRun(100, func() {
					if err := prog.Run(lane, n, c.Inputs, w, &out); err != nil {
						t.Fatal(err)
					}
				}); allocs != 0 {
					t.Errorf("%v allocations a run", allocs)
				}
				if first == nil {
					first = out.Values
				}
				sameBits(t, "threads", out.Values, first)
			}
			for i, o := range c.Graph.Outputs() {
				for k, x := range first[i] {
					if v := want[o.ID]; !v.Holds(k, x) {
						t.Fatalf("output %q[%d] is %g, want %g within %g", o.Name, k, x, v.V[k], v.E[k])
					}
				}
			}
		})
	}
}

// A product by element that a sum alone reads is part of it.
func TestMulAddIsOneStep(t *testing.T) {
	for _, swapped := range []bool{false, true} {
		b := &graph.Builder{}
		x, y, z := b.Input("x", 3), b.Input("y", 3), b.Input("z", 3)
		in := []graph.ID{b.Add("", graph.Mul{}, x, y), z}
		if swapped {
			slices.Reverse(in)
		}
		b.Output("sum", b.Add("sum", graph.Add{}, in...))
		if steps := compile(t, b, nn.Options{}).Steps(1); len(steps) != 1 || steps[0].Op != (graph.MulAdd{}) {
			t.Errorf("swapped %v: %v", swapped, steps)
		}
	}
}

// BenchmarkFused is each hand-written operation, forwards and backwards, beside what it is composed of, in
// turns: the fastest run of each, microseconds for a batch of 128 on one thread.
func BenchmarkFused(b *testing.B) {
	for _, p := range graphtest.Pairs(true) {
		b.Run(p.Name, func(b *testing.B) {
			const n = 128
			var runs [2]func()
			for i, layer := range []graphtest.Layer{p.Fused, p.Composed} {
				c, prog := program(b, p, layer, n)
				lane, w, out := &nn.Lane{}, &nn.Weights{Values: c.Weights}, nn.Outputs{}
				runs[i] = func() {
					if err := prog.Run(lane, n, c.Inputs, w, &out); err != nil {
						b.Fatal(err)
					}
				}
				runs[i]()
			}
			var fastest [2]time.Duration
			for b.Loop() {
				for _, i := range rand.Perm(2) {
					began := time.Now()
					runs[i]()
					if took := time.Since(began); fastest[i] == 0 || took < fastest[i] {
						fastest[i] = took
					}
				}
			}
			b.ReportMetric(float64(fastest[0].Nanoseconds())/1e3, "fused-us")
			b.ReportMetric(float64(fastest[1].Nanoseconds())/1e3, "composed-us")
		})
	}
}
