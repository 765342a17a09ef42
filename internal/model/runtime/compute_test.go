package runtime

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/graph/graphtest"
	"github.com/monolith-go/monolith/kernels/graph/ref"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// A ready model, trained and scored in float32 and in bfloat16, is within the bound that kernels/gemm
// states of the float64 reference, and its bits depend on no lane and no thread.
func TestComputeIsWithinItsBound(t *testing.T) {
	for _, compute := range []model.ModelSpec_Compute{model.ModelSpec_FP32, model.ModelSpec_BF16} {
		t.Run(compute.String(), func(t *testing.T) { withinBounds(t, compute) })
	}
}

func withinBounds(t *testing.T, compute model.ModelSpec_Compute) {
	lanes := []*nn.Lane{{}, {Pool: partest.New(t, 2)}, {Pool: partest.New(t, 3)}}
	for name, spec := range readyModels(t) {
		spec = proto.CloneOf(spec)
		spec.Compute, spec.ServingCompute = compute, compute
		m, err := modelspec.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		for what, g := range map[string]*graph.Graph{"trained": m.Train, "scored": m.Serve} {
			t.Run(name+" "+what, func(t *testing.T) {
				p, err := nn.Compile(g, nn.Options{})
				if err != nil {
					t.Fatal(err)
				}
				const n = 9
				rng := rand.New(rand.NewPCG(1, 2))
				numbers := func(count, below int) []float32 { // whole ones below that, 0: any
					x := make([]float32, count)
					for i := range x {
						if x[i] = float32(rng.NormFloat64()) / 4; below > 0 {
							x[i] = float32(rng.IntN(below))
						}
					}
					return x
				}
				lengths := m.Tensors + len(m.Sequences)
				var in, weights [][]float32
				for i, port := range p.Inputs() {
					below := 0
					switch {
					case i >= lengths+len(spec.GetFloats()): // a label
						below = 2
					case i >= m.Tensors && i < lengths:
						below = 4
					}
					in = append(in, numbers(port.Shape.Floats(n), below))
				}
				for _, port := range p.Weights() {
					weights = append(weights, numbers(port.Shape.Size(), 0))
				}
				want, err := ref.Run(g, n, graphtest.Wide(in), graphtest.Wide(weights))
				if err != nil {
					t.Fatal(err)
				}
				var first [][]float32
				for i, lane := range lanes {
					var out nn.Outputs
					if err := p.Run(lane, n, in, &nn.Weights{Values: weights}, &out); err != nil {
						t.Fatal(err)
					}
					if first == nil {
						first = out.Values
					}
					for k := range first {
						sameFloats(t, fmt.Sprintf("lane %d, output %d", i, k), out.Values[k], first[k])
					}
				}
				for i, o := range g.Outputs() {
					for k, x := range first[i] {
						if v := want[o.ID]; !v.Holds(k, x) {
							t.Fatalf("%s[%d] is %g, want %g within %g", o.Name, k, x, v.V[k], v.E[k])
						}
					}
				}
			})
		}
	}
}

// Of a layer's products those of several units are of bfloat16 where it, or the model, says so,
// with their gradients, and of int8 where the model says so of serving; a logit's never are.
func TestComputeIsByLayer(t *testing.T) {
	bf16, fp32, int8 := model.ModelSpec_BF16, model.ModelSpec_FP32, model.ModelSpec_INT8
	for _, tc := range []struct {
		all, serving model.ModelSpec_Compute
		layers       []*model.ModelSpec_Compute // nil: as the model
		train, serve int                        // products of bfloat16
		quantised    int                        // of int8
	}{
		{fp32, fp32, []*model.ModelSpec_Compute{nil, nil, nil}, 0, 0, 0},
		{bf16, fp32, []*model.ModelSpec_Compute{nil, nil, nil}, 6, 0, 0},
		{bf16, bf16, []*model.ModelSpec_Compute{nil, &fp32, nil}, 3, 1, 0},
		{fp32, bf16, []*model.ModelSpec_Compute{&bf16, nil, &bf16}, 3, 2, 0},
		{bf16, int8, []*model.ModelSpec_Compute{nil, nil, nil}, 6, 0, 2},
		{fp32, int8, []*model.ModelSpec_Compute{&fp32, nil, nil}, 0, 0, 1},
	} {
		spec := modelspec.MovieRanking()
		spec.Compute, spec.ServingCompute = tc.all, tc.serving
		for i, c := range tc.layers {
			spec.Layers[i].Compute = c
		}
		m, err := modelspec.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := []int{products(m.Train, graph.BF16), products(m.Serve, graph.BF16)}; got[0] != tc.train || got[1] != tc.serve {
			t.Errorf("%+v: %d products of bfloat16", tc, got)
		}
		if got := []int{products(m.Train, graph.INT8), products(m.Serve, graph.INT8)}; got[0] != 0 || got[1] != tc.quantised {
			t.Errorf("%+v: %d products of int8", tc, got)
		}
	}
}

// products counts those of a precision.
func products(g *graph.Graph, p graph.Precision) (n int) {
	for _, node := range g.Nodes() {
		if op, ok := node.Op.(graph.MatMul); ok && op.Precision == p {
			n++
		}
	}
	return n
}

// many samples of wide are laid out by all threads of a lane.
const many = 1024

// Steps of an engine in bfloat16 have the same bits on every lane, and whichever of its threads lay out the rows.
func TestBFloat16OnEveryLane(t *testing.T) {
	for _, n := range []int{200, many} {
		t.Run(fmt.Sprintf("%d samples", n), func(t *testing.T) { sameOnEveryLane(t, n) })
	}
}

func sameOnEveryLane(t *testing.T, n int) {
	spec := wide()
	spec.Compute = model.ModelSpec_BF16
	e := engineOf(t, spec, 3, n)
	s, w := draw(rand.New(rand.NewPCG(5, 5)), spec, n), weightsOf(t, e)
	var want [][]float32
	for i, pool := range []*par.Pool{nil, partest.New(t, 2), partest.New(t, 3)} {
		b := e.NewBatch()
		s.into(t, b)
		each(e, b, func(id int64, row, _ []float32) { copy(row, rowOf(id, len(row))) })
		l := &Lane{Pool: pool}
		if _, err := e.Train(l, b, w); err != nil {
			t.Fatal(err)
		}
		if apart := e.runner(l, b) != nil; apart != (n == many && pool != nil) {
			t.Errorf("rows are laid out by the lane's threads: %v", apart)
		}
		got := append([][]float32(nil), b.Dense...)
		for shard := range 3 {
			for _, block := range b.Blocks(shard) {
				got = append(got, block.Grads)
			}
		}
		if want == nil {
			want = got
		}
		for k := range want {
			sameFloats(t, fmt.Sprintf("lane %d, gradient %d", i, k), got[k], want[k])
		}
	}
}

func sameFloats(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if !slices.Equal(bitsOf(got), bitsOf(want)) {
		t.Errorf("%s: other bits", what)
	}
}
