package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/graph/graphtest"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// share makes the first count floats of each sample those of the first.
func share(values []float32, size, count int) {
	for at := size; at < len(values); at += size {
		copy(values[at:at+count], values[:count])
	}
}

// Drawn graphs, with their gradients, whose samples have something in common: computed once, it has the bits
// that it has computed for each, in lanes that others have used.
func FuzzShared(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed, uint8(2+seed), seed%3 == 0)
	}
	pools := []*par.Pool{nil, partest.New(f, 2)}
	used := &nn.Lane{Pool: pools[1]}
	f.Fuzz(func(t *testing.T, seed uint64, n uint8, bf16 bool) {
		rng := rand.New(rand.NewPCG(seed, 7))
		c, err := graphtest.Draw(rng, int(n)%70, graphtest.Options{BF16: bf16, Sums: true})
		if err != nil {
			t.Fatal(err)
		}
		shared := make([]int, len(c.Inputs))
		for i, id := range c.Graph.Inputs() {
			size := c.Graph.Nodes()[id].Shape.Size()
			if shared[i] = rng.IntN(size + 1); rng.IntN(2) == 0 {
				shared[i] = size
			}
			share(c.Inputs[i], size, shared[i])
		}
		given := slices.Clone(c.Inputs)
		for i, id := range c.Graph.Inputs() { // of what is all the same one row will do
			if size := c.Graph.Nodes()[id].Shape.Size(); shared[i] == size && c.N > 1 && rng.IntN(2) == 0 {
				given[i] = given[i][:size:size]
			}
		}
		w := &nn.Weights{Values: c.Weights}
		for _, o := range []nn.Options{{}, {Unfused: true}} {
			p, err := nn.Compile(c.Graph, o)
			if err != nil {
				t.Fatal(err)
			}
			var want nn.Outputs
			if err := p.Run(&nn.Lane{}, c.N, c.Inputs, w, &want); err != nil {
				t.Fatal(err)
			}
			for i, lane := range []*nn.Lane{used, {Pool: pools[0]}} {
				lane.Poison()
				var got nn.Outputs
				if err := p.RunShared(lane, c.N, given, shared, w, &got); err != nil {
					t.Fatal(err)
				}
				sameBits(t, fmt.Sprintf("%+v, lane %d", o, i), got.Values, want.Values)
			}
		}
	})
}

// What samples have in common is not read of any but the first: there the others hold NaN.
func TestWhatIsSharedIsReadOnce(t *testing.T) {
	const n, user, item = 20, 64, 32
	rng := rand.New(rand.NewPCG(1, 2))
	b := &graph.Builder{}
	x, u := b.Input("x", user+item), b.Input("u", user)
	weight := func(name string, dims ...int) graph.ID { return b.Weight(name, dims...) }
	tower := b.Add("", graph.ReLU{}, b.Dense("user tower", u, weight("k0", user, 16), weight("b0", 16), graph.FP32))
	deep := b.Add("", graph.ReLU{}, b.Dense("deep", b.Add("", graph.Concat{}, x, tower), weight("k1", user+item+16, 48), weight("b1", 48), graph.FP32))
	b.Output("tower", tower)
	b.Output("deep", b.Dense("last", deep, weight("k2", 48, 1), weight("b2", 1), graph.FP32))
	p := compile(t, b, nn.Options{})
	values := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = rng.Float32() - 0.5
		}
		return v
	}
	w := &nn.Weights{}
	for _, port := range p.Weights() {
		w.Values = append(w.Values, values(port.Shape.Size()))
	}
	in := [][]float32{values(n * (user + item)), values(n * user)}
	share(in[0], user+item, user)
	share(in[1], user, user)
	var want, got nn.Outputs
	var lane nn.Lane
	if err := p.Run(&lane, n, in, w, &want); err != nil {
		t.Fatal(err)
	}
	spoilt := [][]float32{slices.Clone(in[0]), slices.Clone(in[1])}
	for i := 1; i < n; i++ {
		for k := range user {
			spoilt[0][i*(user+item)+k], spoilt[1][i*user+k] = float32(math.NaN()), float32(math.NaN())
		}
	}
	shared := []int{user, user}
	if err := p.RunShared(&lane, n, spoilt, shared, w, &got); err != nil {
		t.Fatal(err)
	}
	sameBits(t, "shared", got.Values, want.Values)
	if allocs := testing.AllocsPerRun(20, func() {
		if err := p.RunShared(&lane, n, in, shared, w, &got); err != nil {
			t.Fatal(err)
		}
	}); allocs > 0 {
		t.Errorf("%v allocations a run", allocs)
	}
	if err := p.RunShared(&lane, n, in, shared[:1], w, &got); err == nil {
		t.Error("an input of which nothing is said")
	}
}
