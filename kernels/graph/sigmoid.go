package graph

// Sigmoid is 1 / (1 + exp(−x)), computed in float64 and rounded. NaN stays NaN.
type Sigmoid struct{}

// Tanh is the hyperbolic tangent, computed in float64 and rounded. NaN stays NaN.
type Tanh struct{}

// Name is "sigmoid".
func (Sigmoid) Name() string { return "sigmoid" }

// Name is "tanh".
func (Tanh) Name() string { return "tanh" }

// Shape is the operand's.
func (Sigmoid) Shape(in []Shape) (Shape, error) { return same(in, 1) }

// Shape is the operand's.
func (Tanh) Shape(in []Shape) (Shape, error) { return same(in, 1) }

// Backward is dy · (y · (1 − y)).
func (Sigmoid) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	rest := b.Add("", Scale{-1, 1}, at.ID)
	return []ID{b.Add("", Mul{}, dy, b.Add("", Mul{}, at.ID, rest))}
}

// Backward is dy · (1 − y²).
func (Tanh) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	square := b.Add("", Mul{}, at.ID, at.ID)
	return []ID{b.Add("", Mul{}, dy, b.Add("", Scale{-1, 1}, square))}
}

// Cost counts exp, an addition and a division.
func (Sigmoid) Cost(n int, in []Shape, out Shape) Cost { return each(12, n, in, out) }

// Cost counts a function.
func (Tanh) Cost(n int, in []Shape, out Shape) Cost { return each(10, n, in, out) }
