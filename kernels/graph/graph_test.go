package graph_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/graph/graphtest"
)

// refusals are operations that do not fit their operands, and what is said of each.
var refusals = []struct {
	op   graph.Op
	in   shapes
	says string
}{
	{graph.Input{Dims: []int{0}}, nil, "give dimensions of 1 or more"},
	{graph.Input{Dims: []int{1 << 20, 1 << 20}}, nil, "2147483648 floats in all at most"},
	{graph.Weight{Dims: []int{-1}}, nil, "give dimensions of 1 or more"},
	{graph.Const{}, shapes{fixed()}, "it has 1 operands: give 0"},
	{graph.MatMul{}, shapes{per(3)}, "it has 1 operands: give 2"},
	{graph.MatMul{}, shapes{per(3), fixed(4, 5)}, "factors of [n 3] and [4 5] do not fit"},
	{graph.MatMul{}, shapes{fixed(3), fixed(3, 5)}, "do not fit"},
	{graph.MatMul{}, shapes{per(), fixed(3, 5)}, "do not fit"},
	{graph.MatMul{}, shapes{per(3), per(3, 5)}, "do not fit"},
	{graph.MatMul{}, shapes{per(3), fixed(3, 5, 1)}, "do not fit"},
	{graph.MatMul{Kind: graph.NT}, shapes{per(3), fixed(3, 5)}, "do not fit"},
	{graph.MatMul{Kind: graph.TN}, shapes{per(2, 3), per(3, 4)}, "do not fit"},
	{graph.MatMul{Kind: graph.TN}, shapes{per(3), fixed(3)}, "do not fit"},
	{graph.MatMul{Bias: true}, shapes{per(3), fixed(3, 5), fixed(4)}, "a bias of [4] for a product of [n 5]"},
	{graph.MatMul{Kind: graph.NT, Bias: true}, shapes{per(5), fixed(3, 5), fixed(3)}, "only a layer's product"},
	{graph.MatMul{Kind: graph.NT, Finish: graph.ToReLU}, shapes{per(5), fixed(3, 5)}, "only a layer's product"},
	{graph.MatMul{Kind: graph.TN, Finish: graph.ToMask}, shapes{per(5), per(5), per(5)}, "no sum over the batch"},
	{graph.MatMul{Finish: graph.ToMask}, shapes{per(3), fixed(3, 5), per(4)}, "a mask of [n 4] for a product of [n 5]"},
	{graph.SumRows{}, shapes{fixed(3)}, "give [n … m]"},
	{graph.SumRows{}, nil, "it has 0 operands: give 1"},
	{graph.Broadcast{Dims: []int{4}}, shapes{fixed(3)}, "a row of [3] cannot fill [n 4]"},
	{graph.Broadcast{Dims: []int{4}}, shapes{per(4)}, "cannot fill"},
	{graph.Broadcast{}, shapes{fixed()}, "cannot fill"},
	{graph.Concat{}, nil, "no operands"},
	{graph.Concat{}, shapes{per(3), per(3, 2)}, "an operand is [n 3 2]"},
	{graph.Concat{}, shapes{per(1 << 30), per(1 << 30), per(1)}, "more than 2147483648 columns"},
	{graph.Slice{From: 2, To: 2}, shapes{per(3)}, "columns 2 to 2 of [n 3]"},
	{graph.Slice{From: -1, To: 2}, shapes{per(3)}, "columns -1 to 2"},
	{graph.Slice{From: 1, To: 4}, shapes{per(3)}, "columns 1 to 4"},
	{graph.Pad{From: 2, Width: 4}, shapes{per(3)}, "does not fit into 4 columns from column 2 on"},
	{graph.Pad{From: -1, Width: 4}, shapes{per(3)}, "does not fit"},
	{graph.Reshape{Dims: []int{4}}, shapes{per(3)}, "[n 3] cannot become [n 4]"},
	{graph.Reshape{Dims: []int{0}}, shapes{per(3)}, "give dimensions of 1 or more"},
	{graph.Add{}, shapes{per(3), fixed(3)}, "the shapes [n 3] and [3]: make them equal"},
	{graph.Mul{}, shapes{per(3), per(1, 3)}, "make them equal"},
	{graph.Scale{}, nil, "give 1"},
	{graph.MulScalar{}, shapes{per(3), per()}, "the factor is [n]: give a single number"},
	{graph.TimesBatch{}, shapes{fixed(1)}, "its operand is [1]: give a single number"},
	{graph.ReLU{}, shapes{per(3), per(3)}, "give 1"},
	{graph.Mask{}, shapes{per(3), per(4)}, "make them equal"},
	{graph.Sigmoid{}, nil, "give 1"},
	{graph.Tanh{}, nil, "give 1"},
	{graph.CrossEntropy{}, shapes{per(2), per(2)}, "give one number a sample, [n 1]"},
	{graph.CrossEntropyGrad{}, shapes{per(1), fixed(1)}, "make them equal"},
	{graph.MSE{}, shapes{per(1)}, "give 2"},
	{graph.MSE{Weighted: true}, shapes{per(1), per(1)}, "give 3"},
	{graph.CrossEntropy{Weighted: true}, shapes{per(1), per(1), per(2)}, "make them equal"},
	{graph.MSEGrad{}, shapes{fixed(1), fixed(1)}, "[n 1]"},
	{graph.SiLU{}, nil, "give 1"},
	{graph.SiLUGrad{}, shapes{per(3), per(4)}, "make them equal"},
	{graph.GELU{}, nil, "give 1"},
	{graph.GELUGrad{}, shapes{per(3), fixed(3)}, "make them equal"},
	{graph.Exp{}, nil, "give 1"},
	{graph.Log1p{}, nil, "give 1"},
	{graph.Sqrt{}, nil, "give 1"},
	{graph.Reciprocal{}, nil, "give 1"},
	{graph.AddRow{}, shapes{per(3), per(3)}, "its operands are [n 3] and [n 3]: give [n … m] and a row [m]"},
	{graph.AddRow{}, shapes{per(3), fixed(4)}, "a row [m]"},
	{graph.MulRow{}, shapes{per(), fixed(1)}, "a row [m]"},
	{graph.MulRow{}, shapes{fixed(3), fixed(3)}, "a row [m]"},
	{graph.PReLU{}, shapes{per(3)}, "give 2"},
	{graph.PReLU{}, shapes{per(2, 3), fixed(2)}, "a row [m]"},
	{graph.PReLUGrad{}, shapes{per(3), per(4), fixed(4)}, "make them equal"},
	{graph.PReLUGrad{}, shapes{per(3), per(3), fixed(4)}, "a row [m]"},
	{graph.PReLUGrad{}, shapes{per(3), per(3)}, "give 3"},
	{graph.Sum{Axis: 1}, shapes{per(3)}, "its operand is [n 3]: give one of the batch with more than 1 dimensions"},
	{graph.Sum{Axis: -1}, shapes{per(3)}, "with more than -1"},
	{graph.Sum{}, shapes{fixed(3)}, "one of the batch"},
	{graph.Repeat{Axis: 2, Count: 1}, shapes{per(3)}, "with at least 2 dimensions"},
	{graph.Repeat{Axis: -1, Count: 1}, shapes{per(3)}, "with at least"},
	{graph.Repeat{Axis: 1}, shapes{per(3)}, "give dimensions of 1 or more"},
	{graph.Repeat{Count: 1}, shapes{fixed(3)}, "one of the batch"},
	{graph.Softmax{}, shapes{per(3), per(1)}, "give 1"},
	{graph.Softmax{Lengths: true}, shapes{per(3)}, "give 2"},
	{graph.Softmax{Lengths: true}, shapes{per(3), per(2)}, "its lengths are [n 2]: give one a sample, [n 1]"},
	{graph.Softmax{}, shapes{per()}, "its operand is [n]: give [n … m]"},
	{graph.Softmax{}, shapes{fixed(3)}, "give [n … m]"},
	{graph.SoftmaxGrad{}, shapes{per(3), per(4)}, "make them equal"},
	{graph.SoftmaxGrad{Lengths: true}, shapes{per(3), per(3), fixed(1)}, "its lengths are [1]"},
	{graph.Normalize{}, shapes{per(3)}, "its epsilon is 0: give a number above 0"},
	{graph.Normalize{Epsilon: 1}, shapes{fixed(3)}, "give [n … m]"},
	{graph.NormalizeGrad{Epsilon: 1}, shapes{per(3), per(4)}, "make them equal"},
	{graph.L2Norm{Epsilon: -1}, shapes{per(3)}, "its epsilon is -1"},
	{graph.L2Norm{Epsilon: 1}, nil, "give 1"},
	{graph.L2NormGrad{Epsilon: 1}, shapes{per(3)}, "give 2"},
	{graph.BatchMatMul{}, shapes{per(2, 3)}, "give 2"},
	{graph.BatchMatMul{}, shapes{per(2, 3), fixed(3, 4)}, "give each sample two matrices"},
	{graph.BatchMatMul{}, shapes{per(2, 3), per(3)}, "give each sample two matrices"},
	{graph.BatchMatMul{}, shapes{per(2, 3), per(4, 3)}, "factors of [n 2 3] and [n 4 3] do not fit"},
	{graph.BatchMatMul{Kind: graph.NT}, shapes{per(2, 3), per(3, 4)}, "do not fit"},
	{graph.BatchMatMul{Kind: graph.TN}, shapes{per(2, 3), per(3, 4)}, "do not fit"},
	{graph.AddEach{}, shapes{per(2, 3), per(2)}, "its operands are [n 2 3] and [n 2]: give [n t m] and [n m]"},
	{graph.AddEach{}, shapes{per(2, 3), fixed(3)}, "give [n t m]"},
	{graph.MulEach{}, shapes{per(3), per(3)}, "give [n t m]"},
	{graph.MulEach{}, shapes{per(2, 3)}, "give 2"},
	{graph.SumProducts{}, shapes{per(3), per(3)}, "its operands are [n 3]: give [n t m]"},
	{graph.SumProducts{}, shapes{per(2, 3), per(3, 2)}, "make them equal"},
	{graph.GRU{}, shapes{per(2, 6), per(2, 3)}, "give 4"},
	{graph.GRU{}, shapes{per(2, 6), per(3), fixed(3, 6), fixed(3, 3)}, "its candidate is [n 3]: give [n t h]"},
	{graph.GRU{}, shapes{per(2, 5), per(2, 3), fixed(3, 6), fixed(3, 3)}, "its operand 0 is [n 2 5]: with a candidate of [n 2 3] give [n 2 6]"},
	{graph.GRU{}, shapes{per(2, 6), per(2, 3), fixed(3, 3), fixed(3, 3)}, "its operand 2"},
	{graph.GRU{}, shapes{per(2, 6), per(2, 3), fixed(3, 6), per(3, 3)}, "its operand 3"},
	{graph.GRU{Attention: true}, shapes{per(2, 6), per(2, 3), fixed(3, 6), fixed(3, 3), per(2)}, "its operand 4 is [n 2]"},
	{graph.GRU{Attention: true, Lengths: true}, shapes{per(2, 6), per(2, 3), fixed(3, 6), fixed(3, 3), per(2, 1), per(2)}, "its operand 5 is [n 2]"},
	{graph.GRUGrad{}, shapes{per(2, 3)}, "give dy, the states, and those of gru"},
	{graph.GRUGrad{}, shapes{per(2, 3), per(2, 4), per(2, 6), per(2, 3), fixed(3, 6), fixed(3, 3)}, "dy and the states are [n 2 3] and [n 2 4]: give [n 2 3]"},
	{graph.GRUGrad{}, shapes{per(2, 3), per(2, 3), per(2, 6), per(2, 3), fixed(3, 6)}, "it has 3 operands"},
	{graph.InBatchSoftmax{}, shapes{per(3), per(4)}, "make them equal"},
	{graph.InBatchSoftmax{}, shapes{per(2, 3), per(2, 3)}, "its operands are [n 2 3]: give a vector for each sample"},
	{graph.InBatchSoftmax{LogQ: true}, shapes{per(3), per(3)}, "give 3"},
	{graph.InBatchSoftmax{LogQ: true}, shapes{per(3), per(3), per(3)}, "its log q is [n 3]"},
	{graph.InBatchSoftmaxGrad{}, shapes{fixed(3), fixed(3)}, "give a vector for each sample"},
	{graph.InBatchAUC{}, shapes{per(2), per(2)}, "give one number a sample, [n 1]"},
	{graph.InBatchAUCGrad{}, shapes{per(1)}, "give 2"},
	{graph.Penalty{L2: -1}, shapes{per(3)}, "its factors are 0 and -1: give numbers of 0 or more"},
	{graph.Penalty{}, shapes{per(3), per(3)}, "give 1"},
	{graph.PenaltyGrad{}, nil, "give 1"},
	{graph.MulAdd{}, shapes{per(3), per(3), per(4)}, "make them equal"},
	{graph.FFM{}, shapes{per(3, 4, 5)}, "its operand is [n 3 4 5]: give an embedding of each field for each field"},
	{graph.FFM{}, shapes{per(3, 4)}, "for each field"},
	{graph.FFM{}, nil, "give 1"},
	{graph.FFMGrad{}, shapes{per(3, 3, 5), per(2)}, "give the embeddings and [n 1]"},
	{graph.FFMGrad{}, shapes{per(3, 4, 5), per(1)}, "for each field"},
	{graph.FFMGrad{}, shapes{per(3, 3, 5)}, "give 2"},
	{graph.FM{}, shapes{per(3)}, "its operand is [n 3]: give a stack of embeddings"},
	{graph.FM{}, shapes{fixed(3, 4)}, "give a stack"},
	{graph.FM{}, nil, "give 1"},
	{graph.FMGrad{}, shapes{per(3, 4)}, "give 2"},
	{graph.FMGrad{}, shapes{per(3, 4), per(2)}, "give the stack, [n 1]"},
	{graph.FMGrad{}, shapes{per(3), per(1)}, "give a stack"},
	{graph.FMGrad{Onto: true}, shapes{per(3, 4), per(1), per(4, 3)}, "as large as the stack"},
}

type shapes = []graph.Shape

func per(dims ...int) graph.Shape   { return graph.PerSample(dims...) }
func fixed(dims ...int) graph.Shape { return graph.Fixed(dims...) }

// What does not fit is refused in a sentence that names the node.
func TestRefusals(t *testing.T) {
	for _, tc := range refusals {
		b := &graph.Builder{}
		var in []graph.ID
		for _, s := range tc.in {
			in = append(in, b.Const(0, s))
		}
		b.Output("it", b.Add("it", tc.op, in...))
		if _, err := b.Graph(); err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), fmt.Sprintf("node %q (%s)", "it", tc.op.Name())) {
			t.Errorf("%s of %v: %v, it should say %q", tc.op.Name(), tc.in, err, tc.says)
		}
	}
}

func TestBuilderRefusals(t *testing.T) {
	for says, build := range map[string]func(b *graph.Builder){
		`two nodes are called "x"`:                func(b *graph.Builder) { b.Input("x", 1); b.Input("x", 1) },
		"it has no output":                        func(b *graph.Builder) { b.Input("x", 1) },
		`two outputs are called "y"`:              func(b *graph.Builder) { x := b.Input("x", 1); b.Output("y", x); b.Output("y", x) },
		`output "y" is no node`:                   func(b *graph.Builder) { b.Output("y", 3) },
		"operand 0 is no node":                    func(b *graph.Builder) { b.Add("", graph.ReLU{}, 0) },
		"no node of this graph":                   func(b *graph.Builder) { b.Gradients(4) },
		"only a single number has one":            func(b *graph.Builder) { b.Gradients(b.Input("x", 1)) },
		`node "loss" (mse): a gradient by its la`: func(b *graph.Builder) { x := b.Input("x", 1); b.Gradients(b.Add("loss", graph.MSE{}, x, x), x) },
		"no operands":                             func(b *graph.Builder) { b.Mix("", b.Input("gate", 2)) },
		"factors of [n 1 3] and [n 2 5] do not fit": func(b *graph.Builder) {
			b.Mix("", b.Input("gate", 3), b.Input("one", 5), b.Input("two", 5))
		},
		`node "loss" (in_batch_auc): a gradient by its labels`: func(b *graph.Builder) {
			x, y := b.Input("x", 1), b.Input("y", 1)
			b.Gradients(b.Add("loss", graph.InBatchAUC{}, x, y), y)
		},
		`node "loss" (mse): a gradient by its labels or weights`: func(b *graph.Builder) {
			x, y := b.Input("x", 1), b.Input("y", 1)
			b.Gradients(b.Add("loss", graph.MSE{Weighted: true}, x, x, y), y)
		},
		"factors of [n 1 1] and [n 1 2] do not fit": func(b *graph.Builder) { b.Dot("", b.Input("x", 1), b.Input("y", 2)) },
		"factors of [n 1 3] and [n 2 4] do not fit": func(b *graph.Builder) { b.Weigh("", b.Input("w", 3), b.Input("k", 2, 4)) },
		"with more than 3 dimensions":               func(b *graph.Builder) { b.Mean("", 3, b.Input("x", 1)) },
		`node "p" (mul_scalar): a gradient by its factor`: func(b *graph.Builder) {
			w, y := b.Weight("w"), b.Input("y", 1)
			b.Gradients(b.Add("", graph.MSE{}, b.Add("p", graph.MulScalar{}, y, w), y), w)
		},
		"a loss is derived once only": func(b *graph.Builder) {
			x, y := b.Input("x", 1), b.Input("y", 1)
			d := b.Gradients(b.Add("", graph.CrossEntropy{}, x, y), x)
			b.Gradients(b.Add("", graph.MSE{}, d[0], y), x)
		},
	} {
		b := &graph.Builder{}
		build(b)
		if _, err := b.Graph(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
		if id := b.Input("later", 1); id != graph.None { // errors stay, and a builder ends with its graph
			t.Errorf("%q: a node was added afterwards", says)
		}
	}
}

// A node that the loss does not depend on has zeros for a gradient, the loss itself 1.
func TestGradientsOfNothing(t *testing.T) {
	b := &graph.Builder{}
	x, y, w := b.Input("x", 1), b.Input("y", 1), b.Weight("w", 3, 4)
	loss := b.Add("loss", graph.MSE{}, x, y)
	d := b.Gradients(loss, w, loss)
	for i, want := range []float32{0, 1} {
		if c, ok := b.Node(d[i]).Op.(graph.Const); !ok || c.Value != want {
			t.Errorf("gradient %d is %+v", i, b.Node(d[i]))
		}
	}
	if s := b.Node(d[0]).Shape; !s.Equal(graph.Fixed(3, 4)) {
		t.Errorf("the gradient's shape is %v", s)
	}
}

func TestCosts(t *testing.T) {
	b := &graph.Builder{}
	x := b.Input("x", 10)
	y := b.Dense("y", x, b.Weight("w", 10, 20), b.Weight("bias", 20), graph.FP32)
	b.Output("z", b.Add("z", graph.ReLU{}, y))
	b.Output("w", b.Add("dw", graph.MatMul{Kind: graph.TN}, x, y))
	b.Output("db", b.Add("db", graph.SumRows{}, y))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]graph.Cost{
		"x":  {},
		"w":  {},
		"y":  {FLOPs: 3 * 2 * 10 * 20, Bytes: 4 * (3*10 + 200 + 20 + 3*20)},
		"z":  {FLOPs: 3 * 20, Bytes: 4 * (3*20 + 3*20)},
		"dw": {FLOPs: 3 * 2 * 10 * 20, Bytes: 4 * (3*10 + 3*20 + 200)},
		"db": {FLOPs: 3 * 20, Bytes: 4 * (3*20 + 20)},
	}
	for _, n := range g.Nodes() {
		if c, ok := want[n.Name]; ok && g.Cost(n, 3) != c {
			t.Errorf("%s costs %+v, want %+v", n.Name, g.Cost(n, 3), c)
		}
	}
}

// Every operation that is drawn has a cost that is not less for more samples.
func TestCostsGrow(t *testing.T) {
	for seed := range uint64(50) {
		c, err := graphtest.Draw(rand.New(rand.NewPCG(seed, 3)), 1, graphtest.Options{Sums: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range c.Graph.Nodes() {
			one, ten := c.Graph.Cost(n, 1), c.Graph.Cost(n, 10)
			if ten.FLOPs < one.FLOPs || ten.Bytes < one.Bytes || n.Shape.Batch && len(n.In) > 0 && n.Op.Name() != "reshape" && ten.Bytes <= one.Bytes {
				t.Errorf("%s costs %+v for one sample and %+v for ten", n.Op.Name(), one, ten)
			}
		}
	}
}
