package graph

import "fmt"

// Add is a + b, element by element, of equal shapes.
type Add struct{}

// Mul is a · b, element by element, of equal shapes.
type Mul struct{}

// Scale is x · Factor + Shift, both rounded.
type Scale struct{ Factor, Shift float32 }

// MulScalar is x times a single number that does not depend on the sample.
type MulScalar struct{}

// TimesBatch is a single number times the batch's size: it makes a sum of a mean.
type TimesBatch struct{}

// Name is "add".
func (Add) Name() string { return "add" }

// Name is "mul".
func (Mul) Name() string { return "mul" }

// Name is "scale".
func (Scale) Name() string { return "scale" }

// Name is "mul_scalar".
func (MulScalar) Name() string { return "mul_scalar" }

// Name is "times_batch".
func (TimesBatch) Name() string { return "times_batch" }

// Shape wants equal ones.
func (Add) Shape(in []Shape) (Shape, error) { return same(in, 2) }

// Shape wants equal ones.
func (Mul) Shape(in []Shape) (Shape, error) { return same(in, 2) }

// Shape is the operand's.
func (Scale) Shape(in []Shape) (Shape, error) { return same(in, 1) }

// Shape is the first operand's; the second is [].
func (MulScalar) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 2); err != nil {
		return Shape{}, err
	}
	if !in[1].Equal(Fixed()) {
		return Shape{}, fmt.Errorf("the factor is %v: give a single number", in[1])
	}
	return in[0], nil
}

// Shape wants [].
func (TimesBatch) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 1); err != nil {
		return Shape{}, err
	}
	if !in[0].Equal(Fixed()) {
		return Shape{}, fmt.Errorf("its operand is %v: give a single number", in[0])
	}
	return in[0], nil
}

// Backward passes the gradient on.
func (Add) Backward(_ *Builder, _ Node, dy ID, _ []bool) []ID { return []ID{dy, dy} }

// Backward is the gradient times the other factor.
func (Mul) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out := []ID{None, None}
	for i := range out {
		if want[i] {
			out[i] = b.Add("", Mul{}, dy, at.In[1-i])
		}
	}
	return out
}

// Backward is the gradient times Factor.
func (o Scale) Backward(b *Builder, _ Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", Scale{Factor: o.Factor}, dy)}
}

// Backward has no gradient by the factor: it would be a sum over the batch that is no chain of a
// product's.
func (MulScalar) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	if want[1] {
		b.Fail("graph: node %q (mul_scalar): a gradient by its factor is wanted, which it does not have: multiply by a row instead", at.Name)
		return []ID{None, None}
	}
	return []ID{b.times(dy, at.In[1]), None}
}

// Backward is the gradient times the batch's size.
func (TimesBatch) Backward(b *Builder, _ Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", TimesBatch{}, dy)}
}

// times is x times the number at s, with no node where that is known to be 1.
func (b *Builder) times(x, s ID) ID {
	if c, ok := b.Node(s).Op.(Const); ok {
		if c.Value == 1 {
			return x
		}
		return b.Add("", Scale{Factor: c.Value}, x)
	}
	return b.Add("", MulScalar{}, x, s)
}

// Cost is one operation an element.
func (Add) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }

// Cost is one operation an element.
func (Mul) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }

// Cost is two operations an element.
func (Scale) Cost(n int, in []Shape, out Shape) Cost { return each(2, n, in, out) }

// Cost is one operation an element.
func (MulScalar) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }

// Cost is one operation.
func (TimesBatch) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }
