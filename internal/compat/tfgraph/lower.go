package tfgraph

import (
	"fmt"
	"math"

	layers "github.com/monolith-go/monolith/kernels/graph"
)

// lowering makes TensorFlow's operations of a model's, which are to the letter those of package kernels/graph.
type lowering struct {
	*graph
	from *layers.Graph
	made []tensor // by node of from
	n    tensor   // the number of samples
}

// lower computes the outputs of from, whose inputs and weights these are, in its order.
func (g *graph) lower(from *layers.Graph, inputs, weights []tensor, n tensor) ([]tensor, error) {
	l := lowering{graph: g, from: from, made: make([]tensor, len(from.Nodes())), n: n}
	for i, id := range from.Inputs() {
		l.made[id] = inputs[i]
	}
	for i, id := range from.Weights() {
		l.made[id] = weights[i]
	}
	for _, node := range from.Nodes() {
		if l.made[node.ID] != "" {
			continue
		}
		in := make([]tensor, len(node.In))
		for i, id := range node.In {
			in[i] = l.made[id]
		}
		var err error
		if l.made[node.ID], err = l.node(node, in); err != nil {
			return nil, fmt.Errorf("node %q (%s) has no counterpart in TensorFlow's stock operations: %w", node.Name, node.Op.Name(), err)
		}
	}
	var out []tensor
	for _, o := range from.Outputs() {
		out = append(out, l.made[o.ID])
	}
	return out, nil
}

// operand is the shape of a node's i-th operand.
func (l *lowering) operand(node layers.Node, i int) layers.Shape {
	return l.from.Nodes()[node.In[i]].Shape
}

var errNoStock = fmt.Errorf("leave the layer out that makes it, or serve the model here")

// node makes one.
func (l *lowering) node(node layers.Node, in []tensor) (tensor, error) {
	switch op := node.Op.(type) {
	case layers.Const:
		if !op.As.Batch {
			return l.constantOf(op.Value, op.As.Dims), nil
		}
		return l.fill(float32s, l.n, l.float(op.Value), op.As.Dims...), nil
	case layers.Reshape:
		return l.reshape(in[0], op.Dims...), nil
	case layers.Concat:
		return l.concat(float32s, 1, in...), nil
	case layers.Slice:
		return l.cut(float32s, in[0], 2, 1, op.From, op.To), nil
	case layers.Sum:
		return l.along("Sum", in[0], false, op.Axis+1), nil
	case layers.Repeat:
		return l.repeat(node, op, in[0]), nil
	case layers.MatMul:
		return l.matMul(node, op, in)
	case layers.BatchMatMul:
		return l.product(in[0], in[1], op.Kind == layers.TN, op.Kind == layers.NT), nil
	case layers.GRU:
		return l.gru(node, op, in), nil
	case layers.Softmax:
		return l.softmax(node, op, in), nil
	case layers.Normalize, layers.L2Norm, layers.FM, layers.FFM:
		return l.reduced(node, in[0]), nil
	}
	if y := l.elementwise(node, in); y != "" {
		return y, nil
	}
	return "", errNoStock
}

// elementwise makes a function of each place; "" where the operation is none.
func (l *lowering) elementwise(node layers.Node, in []tensor) tensor {
	switch op := node.Op.(type) {
	case layers.Add, layers.AddRow:
		return l.addUp(in[0], in[1])
	case layers.Mul, layers.MulRow, layers.MulScalar:
		return l.times(in[0], in[1])
	case layers.MulAdd:
		return l.addUp(l.times(in[0], in[1]), in[2])
	case layers.AddEach:
		return l.addUp(in[0], l.expand(in[1], 1))
	case layers.MulEach:
		return l.times(in[0], l.expand(in[1], 1))
	case layers.SumProducts:
		return l.along("Sum", l.times(in[0], in[1]), false, 1)
	case layers.Scale:
		return l.addUp(l.times(in[0], l.float(op.Factor)), l.float(op.Shift))
	case layers.ReLU:
		return l.one("Relu", in[0])
	case layers.PReLU:
		return l.choose(l.one("LessEqual", in[0], l.float(0)), l.times(in[0], in[1]), in[0])
	case layers.Sigmoid:
		return l.one("Sigmoid", in[0])
	case layers.Tanh:
		return l.one("Tanh", in[0])
	case layers.SiLU:
		return l.times(in[0], l.one("Sigmoid", in[0]))
	case layers.GELU:
		half := l.times(l.one("Erfc", l.times(in[0], l.float(-math.Sqrt2/2))), l.float(0.5))
		return l.times(in[0], half)
	case layers.Exp:
		return l.one("Exp", in[0])
	case layers.Log1p:
		return l.one("Log1p", in[0])
	case layers.Sqrt:
		return l.one("Sqrt", in[0])
	case layers.Reciprocal:
		return l.one("Reciprocal", in[0])
	}
	return ""
}

// repeat has each value op.Count times along a new axis.
func (l *lowering) repeat(node layers.Node, op layers.Repeat, x tensor) tensor {
	often := make([]int, len(node.Shape.Dims)+1)
	for i := range often {
		often[i] = 1
	}
	often[op.Axis+1] = op.Count
	return l.add("Tile", "Tile", attrs{"T": of(float32s), "Tmultiples": of(int32s)}, l.expand(x, op.Axis+1), l.ints(often...))
}

// matMul multiplies rows of any number of dimensions by one matrix.
func (l *lowering) matMul(node layers.Node, op layers.MatMul, in []tensor) (tensor, error) {
	if op.Kind == layers.TN || op.Finish == layers.ToMask {
		return "", fmt.Errorf("it is a gradient: %w", errNoStock)
	}
	if op.Precision == layers.INT8 {
		return "", fmt.Errorf("its factors are whole numbers: declare the layer's precision as FP32 or BF16")
	}
	a, b := in[0], in[1]
	if op.Precision == layers.BF16 {
		a, b = l.rounded(a), l.rounded(b)
	}
	shape := l.operand(node, 0)
	flat := a
	if len(shape.Dims) > 1 {
		flat = l.reshape(a, shape.Last())
	}
	y := l.add("MatMul", "MatMul", attrs{"T": of(float32s), "transpose_a": truth(false), "transpose_b": truth(op.Kind == layers.NT)}, flat, b)
	if op.Bias {
		y = l.add("BiasAdd", "BiasAdd", attrs{"T": of(float32s), "data_format": text("NHWC")}, y, in[2])
	}
	if op.Finish == layers.ToReLU {
		y = l.one("Relu", y)
	}
	if len(shape.Dims) > 1 {
		y = l.reshape(y, node.Shape.Dims...)
	}
	return y, nil
}

// rounded is x as bfloat16 has it.
func (l *lowering) rounded(x tensor) tensor {
	return l.cast(l.cast(x, float32s, bfloats), bfloats, float32s)
}

// reduced are sums along a sample's values.
func (l *lowering) reduced(node layers.Node, x tensor) tensor {
	last := len(l.operand(node, 0).Dims)
	square := func(x tensor) tensor { return l.one("Square", x) }
	switch op := node.Op.(type) {
	case layers.Normalize:
		off := l.less(x, l.along("Mean", x, true, last))
		return l.over(off, l.one("Sqrt", l.addUp(l.along("Mean", square(off), true, last), l.float(op.Epsilon))))
	case layers.L2Norm:
		return l.over(x, l.one("Sqrt", l.larger(l.along("Sum", square(x), true, last), l.float(op.Epsilon))))
	case layers.FM:
		sum := square(l.along("Sum", x, false, 1))
		both := l.less(sum, l.along("Sum", square(x), false, 1))
		return l.times(l.along("Sum", both, true, 1), l.float(0.5))
	}
	// FFM: of the products of i, j and j, i each pair is there twice, and the diagonal once.
	fields := l.operand(node, 0).Dims[0]
	turned := l.add("Transpose", "Transpose", attrs{"T": of(float32s), "Tperm": of(int32s)}, x, l.ints(0, 2, 1, 3))
	upper := make([]float32, fields*fields)
	for i := range fields {
		for j := range i {
			upper[i*fields+j] = 1
		}
	}
	pairs := l.times(l.times(x, turned), l.floats(upper, fields, fields, 1))
	return l.reshape(l.along("Sum", pairs, false, 1, 2, 3), 1)
}
