package graph

// Reciprocal is 1/x, rounded: Inf with its sign of 0.
type Reciprocal struct{}

// Name is "reciprocal".
func (Reciprocal) Name() string { return "reciprocal" }

// Shape is the operand's.
func (Reciprocal) Shape(in []Shape) (Shape, error) { return same(in, 1) }

// Backward is −dy / x².
func (Reciprocal) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	square := b.Add("", Mul{}, at.ID, at.ID)
	return []ID{b.Add("", Scale{Factor: -1}, b.Add("", Mul{}, dy, square))}
}

// Cost counts a division.
func (Reciprocal) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }
