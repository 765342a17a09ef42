package graph

// Log1p is log(1 + x), computed in float64 and rounded: −Inf of −1, NaN below it and of NaN.
type Log1p struct{}

// Name is "log1p".
func (Log1p) Name() string { return "log1p" }

// Shape is the operand's.
func (Log1p) Shape(in []Shape) (Shape, error) { return same(in, 1) }

// Backward is dy / (1 + x).
func (Log1p) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", Mul{}, dy, b.Add("", Reciprocal{}, b.Add("", Scale{1, 1}, at.In[0])))}
}

// Cost counts a function.
func (Log1p) Cost(n int, in []Shape, out Shape) Cost { return each(10, n, in, out) }
