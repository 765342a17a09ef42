package graph

// GELU is x · Φ(x), Φ being the normal distribution (no approximation of it), computed in float64 and
// rounded. NaN stays NaN, and −Inf becomes one.
type GELU struct{}

// Name is "gelu".
func (GELU) Name() string { return "gelu" }

// Shape is the operand's.
func (GELU) Shape(in []Shape) (Shape, error) { return same(in, 1) }

// Backward is [GELUGrad].
func (GELU) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", GELUGrad{}, dy, at.In[0])}
}

// Cost counts erfc and two operations.
func (GELU) Cost(n int, in []Shape, out Shape) Cost { return each(12, n, in, out) }

// GELUGrad is its derivative: dy · (Φ(x) + x · φ(x)) of dy and x, φ being the density, in float64.
type GELUGrad struct{}

// Name is "gelu_grad".
func (GELUGrad) Name() string { return "gelu_grad" }

// Shape wants equal ones.
func (GELUGrad) Shape(in []Shape) (Shape, error) { return same(in, 2) }

// Backward reports: it is derived once.
func (GELUGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost counts a function and what is made of it.
func (GELUGrad) Cost(n int, in []Shape, out Shape) Cost { return each(25, n, in, out) }
