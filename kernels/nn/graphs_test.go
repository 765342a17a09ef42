package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/graph/graphtest"
	"github.com/monolith-go/monolith/kernels/graph/ref"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// Drawn graphs with their gradients: every value is within the reference's bound, and fused or not, on
// whatever threads, in a lane that is new or has been used by others, it has the same bits.
func FuzzPrograms(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed, uint8(seed), seed%3 == 0)
	}
	pools := []*par.Pool{nil, partest.New(f, 2), partest.New(f, 3)}
	used := &nn.Lane{Pool: pools[1]}
	f.Fuzz(func(t *testing.T, seed uint64, n uint8, bf16 bool) {
		c, err := graphtest.Draw(rand.New(rand.NewPCG(seed, 7)), int(n)%70, graphtest.Options{BF16: bf16, Sums: true})
		if err != nil {
			t.Fatal(err)
		}
		if seed%4 == 1 { // a number that is none
			for _, x := range c.Inputs {
				if len(x) > 0 {
					x[int(seed)%len(x)] = float32(math.NaN())
					break
				}
			}
		}
		want, err := ref.Run(c.Graph, c.N, graphtest.Wide(c.Inputs), graphtest.Wide(c.Weights))
		if err != nil {
			t.Fatal(err)
		}
		w := &nn.Weights{Values: c.Weights}
		var first [][]float32
		for _, o := range []nn.Options{{}, {Unfused: true}} {
			p, err := nn.Compile(c.Graph, o)
			if err != nil {
				t.Fatal(err)
			}
			for i, lane := range []*nn.Lane{used, {Pool: pools[0]}, {Pool: pools[2]}} {
				lane.Poison()
				var out nn.Outputs
				for range 2 {
					if err := p.Run(lane, c.N, c.Inputs, w, &out); err != nil {
						t.Fatal(err)
					}
				}
				if first == nil {
					first = out.Values
				}
				sameBits(t, fmt.Sprintf("%+v, lane %d", o, i), out.Values, first)
			}
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

// A bound that were wide open would hold of anything.
func TestBoundsAreTight(t *testing.T) {
	loose, all := 0, 0
	for seed := range uint64(400) {
		c, err := graphtest.Draw(rand.New(rand.NewPCG(seed, 7)), 9, graphtest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := ref.Run(c.Graph, c.N, graphtest.Wide(c.Inputs), graphtest.Wide(c.Weights))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range c.Graph.Outputs() {
			size := 1.0
			for _, v := range want[o.ID].V {
				size = max(size, v, -v)
			}
			for _, e := range want[o.ID].E {
				if all++; e > 1e-3*size {
					loose++
				}
			}
		}
	}
	if loose > all/50 {
		t.Errorf("%d of %d bounds are above a thousandth", loose, all)
	}
}

// A sample's values do not depend on the batch that it is in.
func TestSamplesAreTheirOwn(t *testing.T) {
	for seed := range uint64(60) {
		c, err := graphtest.Draw(rand.New(rand.NewPCG(seed, 7)), 13, graphtest.Options{BF16: seed%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		b := &graph.Builder{} // the graph without its gradients: the values between
		ids := map[graph.ID]graph.ID{}
		for i, n := range c.Graph.Nodes() {
			if graph.ID(i) == c.Loss {
				break
			}
			var in []graph.ID
			for _, id := range n.In {
				in = append(in, ids[id])
			}
			ids[n.ID] = b.Add(n.Name, n.Op, in...)
			if n.Shape.Batch {
				b.Output(n.Name, ids[n.ID])
			}
		}
		p := compile(t, b, nn.Options{})
		var lane nn.Lane
		var all, one nn.Outputs
		w := &nn.Weights{Values: c.Weights}
		if err := p.Run(&lane, c.N, c.Inputs, w, &all); err != nil {
			t.Fatal(err)
		}
		for s := range c.N {
			var in, want [][]float32
			for i, port := range p.Inputs() {
				size := port.Shape.Size()
				in = append(in, c.Inputs[i][s*size:(s+1)*size])
			}
			for i, port := range p.Outputs() {
				size := port.Shape.Size()
				want = append(want, all.Values[i][s*size:(s+1)*size])
			}
			if err := p.Run(&lane, 1, in, w, &one); err != nil {
				t.Fatal(err)
			}
			sameBits(t, fmt.Sprintf("seed %d, sample %d", seed, s), one.Values, want)
		}
	}
}

// A run gives the caller's memory back where it suffices, and takes none itself.
func TestNoAllocation(t *testing.T) {
	p := compile(t, towerGraph(movies, true), nn.Options{})
	r := rand.New(rand.NewPCG(1, 1))
	var params [][]float32
	for _, w := range p.Weights() {
		params = append(params, draw(r, w.Shape.Size(), 0.1))
	}
	x, labels := draw(r, 100*64, 1), make([]float32, 100)
	for _, pool := range []*par.Pool{nil, partest.New(t, 2)} {
		lane, w, out := &nn.Lane{Pool: pool}, &nn.Weights{Values: params}, &nn.Outputs{}
		step := uint64(0)
		in := make([][]float32, 2)
		if n := testing.AllocsPerRun(100, func() {
			for _, n := range []int{100, 3, 64} {
				in[0], in[1] = x[:n*64], labels[:n]
				if err := p.Run(lane, n, in, w, out); err != nil {
					t.Fatal(err)
				}
			}
			step++
			w.Reset(step, params)
		}); n != 0 {
			t.Errorf("%v allocations per step", n)
		}
	}
}

// Lanes run at the same time on one version of the weights, packed by whoever comes first.
func TestLanesShareWeights(t *testing.T) {
	p := compile(t, towerGraph(movies, false), nn.Options{})
	r := rand.New(rand.NewPCG(1, 1))
	var params [][]float32
	for _, w := range p.Weights() {
		params = append(params, draw(r, w.Shape.Size(), 0.1))
	}
	x, labels := draw(r, 50*64, 1), make([]float32, 50)
	pool := partest.New(t, 2)
	var want nn.Outputs
	if err := p.Run(&nn.Lane{}, 50, [][]float32{x, labels}, &nn.Weights{Values: params}, &want); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		w := &nn.Weights{Values: params}
		got := make([]nn.Outputs, 4)
		errs := make([]error, 4)
		done := make(chan struct{})
		for i := range got {
			go func() {
				errs[i] = p.Run(&nn.Lane{Pool: pool}, 50, [][]float32{x, labels}, w, &got[i])
				done <- struct{}{}
			}()
		}
		for range got {
			<-done
		}
		for i := range got {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			sameBits(t, fmt.Sprint("lane ", i), got[i].Values, want.Values)
		}
	}
}

// Memory is less than the values' together, and what a program does not read may be missing.
func TestMemoryAndPruning(t *testing.T) {
	train := towerGraph(movies, false)
	p, unfused := compile(t, train, nn.Options{}), compile(t, towerGraph(movies, false), nn.Options{Unfused: true})
	// The two hidden layers and one gradient of 256, rounded up for single numbers.
	if got := p.Memory(1); got > 256+64+256+64+6*16 || got >= unfused.Memory(1) {
		t.Errorf("%d floats a sample, unfused %d", got, unfused.Memory(1))
	}
	b := &graph.Builder{}
	x, label := b.Input("x", 3), b.Input("label", 1)
	w, never := b.Weight("w", 3, 1), b.Weight("never", 7)
	score := b.Add("score", graph.MatMul{}, x, w)
	b.Add("loss", graph.MSE{}, score, label)
	b.Add("more", graph.Broadcast{Dims: []int{7}}, never)
	b.Output("score", score)
	p = compile(t, b, nn.Options{})
	if !p.Reads(0) || p.Reads(1) || len(p.Steps(1)) != 1 {
		t.Errorf("reads x %v, label %v, in %v", p.Reads(0), p.Reads(1), p.Steps(1))
	}
	var out nn.Outputs
	if err := p.Run(&nn.Lane{}, 2, [][]float32{{1, 2, 3, 4, 5, 6}, nil}, &nn.Weights{Values: [][]float32{{1, 10, 100}, nil}}, &out); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out.Values[0], []float32{321, 654}) {
		t.Errorf("scores %v", out.Values)
	}
}
