package graph

// SiLU is x · sigmoid(x), computed in float64 and rounded. NaN stays NaN, and −Inf becomes one.
type SiLU struct{}

// Name is "silu".
func (SiLU) Name() string { return "silu" }

// Shape is the operand's.
func (SiLU) Shape(in []Shape) (Shape, error) { return same(in, 1) }

// Backward is [SiLUGrad].
func (SiLU) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", SiLUGrad{}, dy, at.In[0])}
}

// Cost counts exp and three operations.
func (SiLU) Cost(n int, in []Shape, out Shape) Cost { return each(13, n, in, out) }

// SiLUGrad is its derivative: dy · s · (1 + x · (1 − s)) of dy and x, s being sigmoid(x), in float64.
type SiLUGrad struct{}

// Name is "silu_grad".
func (SiLUGrad) Name() string { return "silu_grad" }

// Shape wants equal ones.
func (SiLUGrad) Shape(in []Shape) (Shape, error) { return same(in, 2) }

// Backward reports: it is derived once.
func (SiLUGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost counts a function and what is made of it.
func (SiLUGrad) Cost(n int, in []Shape, out Shape) Cost { return each(16, n, in, out) }
