package graph

// Sqrt is the square root, rounded: NaN below 0 and of NaN.
type Sqrt struct{}

// Name is "sqrt".
func (Sqrt) Name() string { return "sqrt" }

// Shape is the operand's.
func (Sqrt) Shape(in []Shape) (Shape, error) { return same(in, 1) }

// Backward is dy / (2 · sqrt(x)), which 0 has not: it gives Inf, or NaN where dy is 0.
func (Sqrt) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	half := b.Add("", Scale{Factor: 0.5}, b.Add("", Reciprocal{}, at.ID))
	return []ID{b.Add("", Mul{}, dy, half)}
}

// Cost counts one operation.
func (Sqrt) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }
