package graph

import "fmt"

// GRU is a gated recurrent unit over a whole sequence, of t steps and h units, as TensorFlow's GRUCell has it:
//
//	r, u = sigmoid(gates + state·wg)
//	c    = tanh(candidate + (r ⊙ state)·wc)
//	state = u ⊙ state + (1 − u) ⊙ c
//
// Its operands are gates [n t 2h], r's before u's, and candidate [n t h], which are what the inputs give with their
// biases, then wg [h 2h] and wc [h h]. The first step has no products with the state, which is 0. With Attention
// an operand [n t 1] follows, and u is u · (1 − attention): DIEN's AUGRU. With Lengths one of [n 1] follows,
// and steps t with t < length count; the others keep the state, and are not read. The result is all states, [n t h].
//
// A NaN or Inf among the weights may reach gradients of steps that do not count. Products are gemm's chains; gates, candidates and states are rounded once each.
type GRU struct{ Attention, Lengths bool }

// GRUGrad is its derivative, of dy, the states that GRU gave, and GRU's operands. A sample's result is the gradient
// by gates, that by candidate, r ⊙ state (which wc was multiplied by), and with Attention the gradient by it.
type GRUGrad struct{ Attention, Lengths bool }

// Name is "gru", or "augru".
func (o GRU) Name() string {
	if o.Attention {
		return "augru"
	}
	return "gru"
}

// Name is that of GRU with "_grad".
func (o GRUGrad) Name() string { return GRU(o).Name() + "_grad" }

// Shape wants operands as the type says.
func (o GRU) Shape(in []Shape) (Shape, error) {
	count := 4
	if o.Attention {
		count++
	}
	if o.Lengths {
		count++
	}
	if err := operands(in, count); err != nil {
		return Shape{}, err
	}
	out := in[1]
	if !out.Batch || len(out.Dims) != 2 {
		return Shape{}, fmt.Errorf("its candidate is %v: give [n t h]", out)
	}
	t, h := out.Dims[0], out.Dims[1]
	want := []Shape{PerSample(t, 2*h), out, Fixed(h, 2*h), Fixed(h, h)}
	if o.Attention {
		want = append(want, PerSample(t, 1))
	}
	if o.Lengths {
		want = append(want, PerSample(1))
	}
	for i, s := range want {
		if !in[i].Equal(s) {
			return Shape{}, fmt.Errorf("its operand %d is %v: with a candidate of %v give %v", i, in[i], out, s)
		}
	}
	return out, nil
}

// Shape wants operands as the type says.
func (o GRUGrad) Shape(in []Shape) (Shape, error) {
	if len(in) < 2 {
		return Shape{}, fmt.Errorf("it has %d operands: give dy, the states, and those of %s", len(in), GRU(o).Name())
	}
	s, err := GRU(o).Shape(in[2:])
	if err != nil {
		return Shape{}, err
	}
	if !in[0].Equal(s) || !in[1].Equal(s) {
		return Shape{}, fmt.Errorf("dy and the states are %v and %v: give %v", in[0], in[1], s)
	}
	return PerSample(o.width(s)), nil
}

func (o GRUGrad) width(states Shape) int {
	if o.Attention {
		return 4*states.Size() + states.Dims[0]
	}
	return 4 * states.Size()
}

// Backward is [GRUGrad], and products with the states before for the weights. Lengths have no gradient.
func (o GRU) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out := make([]ID, len(at.In))
	for i := range out {
		out[i] = None
	}
	t, h := at.Shape.Dims[0], at.Shape.Dims[1]
	all := b.Add("", GRUGrad(o), append([]ID{dy, at.ID}, at.In...)...)
	part := func(from, width int) ID {
		return b.Add("", Reshape{[]int{t, width}}, b.Add("", Slice{from * t, (from + width) * t}, all))
	}
	gates, candidate := part(0, 2*h), part(2*h, h)
	out[0], out[1] = gates, candidate
	if want[2] {
		out[2] = b.Add("", MatMul{Kind: TN}, b.before(at), gates)
	}
	if want[3] {
		out[3] = b.Add("", MatMul{Kind: TN}, part(3*h, h), candidate)
	}
	if o.Attention && want[4] {
		out[4] = part(4*h, 1)
	}
	return out
}

// before is the states [n t h] of a node one step later, the first being 0.
func (b *Builder) before(at Node) ID {
	t, h := at.Shape.Dims[0], at.Shape.Dims[1]
	if t == 1 {
		return b.Const(0, at.Shape)
	}
	flat := b.Add("", Reshape{[]int{t * h}}, at.ID)
	flat = b.Add("", Pad{h, t * h}, b.Add("", Slice{0, (t - 1) * h}, flat))
	return b.Add("", Reshape{[]int{t, h}}, flat)
}

// Backward reports: it is derived once.
func (GRUGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost is that of the products with the state, and 44 operations a state for three functions and the rest.
func (o GRU) Cost(n int, in []Shape, out Shape) Cost {
	return each(6*float64(out.Last())+44, n, in, out)
}

// Cost is that of GRU once more, and of as many products back.
func (o GRUGrad) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{float64(in[0].Floats(n)) * (12*float64(in[0].Last()) + 60), moved(n, in...) + moved(n, out)}
}
