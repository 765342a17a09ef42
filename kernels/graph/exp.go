package graph

// Exp is computed in float64 and rounded, to Inf above 88.7. NaN stays NaN.
type Exp struct{}

// Name is "exp".
func (Exp) Name() string { return "exp" }

// Shape is the operand's.
func (Exp) Shape(in []Shape) (Shape, error) { return same(in, 1) }

// Backward is dy times the result.
func (Exp) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", Mul{}, dy, at.ID)}
}

// Cost counts a function.
func (Exp) Cost(n int, in []Shape, out Shape) Cost { return each(10, n, in, out) }
