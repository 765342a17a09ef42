package graph

import "fmt"

// FM is the second-order term of a factorization machine over a stack of embeddings [n fields dim]: the
// sum of the products two by two, as half of |sum e|² − sum |e|², [n 1]. An infinite embedding makes it
// NaN, as a NaN does.
type FM struct{}

// FMGrad is its gradient by the stack, given dy: dy · (sum − e) for each embedding e. With Onto its
// third operand, of the stack's shape, is what that is added to.
//
// A stack that more layers read is best read by FM first: what the others give comes first then, and
// FM's gradient is added to it in one pass, with one rounding where the processor fuses.
type FMGrad struct{ Onto bool }

// Name is "fm".
func (FM) Name() string { return "fm" }

// Name is "fm_grad".
func (FMGrad) Name() string { return "fm_grad" }

// Shape wants a stack.
func (FM) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 1); err != nil {
		return Shape{}, err
	}
	if !in[0].Batch || len(in[0].Dims) != 2 {
		return Shape{}, fmt.Errorf("its operand is %v: give a stack of embeddings, [n fields dim]", in[0])
	}
	return PerSample(1), nil
}

// Shape wants the stack, [n 1], and with Onto what has the stack's shape.
func (o FMGrad) Shape(in []Shape) (Shape, error) {
	want := 2
	if o.Onto {
		want = 3
	}
	if err := operands(in, want); err != nil {
		return Shape{}, err
	}
	if !in[1].Equal(PerSample(1)) || o.Onto && !in[2].Equal(in[0]) {
		return Shape{}, fmt.Errorf("its operands are %v: give the stack, [n 1] and what is as large as the stack", in)
	}
	_, err := FM{}.Shape(in[:1])
	return in[0], err
}

// Backward is [FMGrad].
func (FM) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", FMGrad{}, at.In[0], dy)}
}

// backwardOnto is [FMGrad] onto what later readers of the stack give.
func (FM) backwardOnto(b *Builder, at Node, dy ID, up []ID) []ID {
	if up[0] == None {
		return []ID{b.Add("", FMGrad{}, at.In[0], dy)}
	}
	return []ID{b.Add("", FMGrad{Onto: true}, at.In[0], dy, up[0])}
}

// Backward reports: it is derived once.
func (FMGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost is two additions and a multiply-add for each float of the stack.
func (FM) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{3 * float64(in[0].Floats(n)), moved(n, in...) + moved(n, out)}
}

// Cost is the sum once more, a difference, and a multiply-add.
func (FMGrad) Cost(n int, in []Shape, out Shape) Cost { return each(4, n, in, out) }
