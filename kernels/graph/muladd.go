package graph

// MulAdd is a · b + c, element by element, of equal shapes: the product is rounded before c is added, so
// it has the bits of [Mul] and [Add], which compilers make one of.
type MulAdd struct{}

// Name is "mul_add".
func (MulAdd) Name() string { return "mul_add" }

// Shape wants equal ones.
func (MulAdd) Shape(in []Shape) (Shape, error) { return same(in, 3) }

// Backward is [Mul]'s, and c's is the gradient itself.
func (MulAdd) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	return append(Mul{}.Backward(b, at, dy, want[:2]), dy)
}

// Cost is two operations an element.
func (MulAdd) Cost(n int, in []Shape, out Shape) Cost { return each(2, n, in, out) }
