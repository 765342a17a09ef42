package graph

// MulRow is x · row: it multiplies each row of [n … m] by a row [m], which does not depend on the sample.
type MulRow struct{}

// Name is "mul_row".
func (MulRow) Name() string { return "mul_row" }

// Shape wants [n … m] and [m].
func (MulRow) Shape(in []Shape) (Shape, error) { return row(in) }

// Backward is that of a product, summed for the row.
func (MulRow) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out := []ID{None, None}
	if want[0] {
		out[0] = b.Add("", MulRow{}, dy, at.In[1])
	}
	if want[1] {
		out[1] = b.Add("", SumRows{}, b.Add("", Mul{}, dy, at.In[0]))
	}
	return out
}

// Cost is one operation an element.
func (MulRow) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }
