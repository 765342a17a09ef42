package graph

// ReLU is x where x is above 0 or NaN, else 0 (−0 may stay −0).
type ReLU struct{}

// Mask is its derivative: dy where y, what ReLU gave, is above 0 or NaN, else 0, even where dy is NaN.
// The slope at 0 is 0.
type Mask struct{}

// Name is "relu".
func (ReLU) Name() string { return "relu" }

// Name is "mask".
func (Mask) Name() string { return "mask" }

// Shape is the operand's.
func (ReLU) Shape(in []Shape) (Shape, error) { return same(in, 1) }

// Shape wants equal ones, dy's and y's.
func (Mask) Shape(in []Shape) (Shape, error) { return same(in, 2) }

// Backward is [Mask].
func (ReLU) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", Mask{}, dy, at.ID)}
}

// Backward is [Mask]; y's gradient is zero wherever it exists.
func (Mask) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	if !want[0] {
		return []ID{None, None}
	}
	return []ID{b.Add("", Mask{}, dy, at.In[1]), None}
}

// Cost is one operation an element.
func (ReLU) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }

// Cost is one operation an element.
func (Mask) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }
