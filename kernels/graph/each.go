package graph

import (
	"fmt"
	"slices"
)

// AddEach adds a sample's row to each of its rows: [n t m] and [n m].
type AddEach struct{}

// MulEach multiplies each of a sample's rows by its row: [n t m] and [n m].
type MulEach struct{}

// SumProducts is the sum over a sample's rows of the products of two values [n t m] by element, [n m]: a chain in
// order, in float32, each product rounded. It is MulEach's derivative by the row.
type SumProducts struct{}

// Name is "add_each".
func (AddEach) Name() string { return "add_each" }

// Name is "mul_each".
func (MulEach) Name() string { return "mul_each" }

// Name is "sum_products".
func (SumProducts) Name() string { return "sum_products" }

// Shape wants [n t m] and [n m].
func (AddEach) Shape(in []Shape) (Shape, error) { return steps(in) }

// Shape wants [n t m] and [n m].
func (MulEach) Shape(in []Shape) (Shape, error) { return steps(in) }

// Shape wants two of [n t m].
func (SumProducts) Shape(in []Shape) (Shape, error) {
	s, err := same(in, 2)
	if err == nil && (!s.Batch || len(s.Dims) != 2) {
		err = fmt.Errorf("its operands are %v: give [n t m]", s)
	}
	if err != nil {
		return Shape{}, err
	}
	return PerSample(s.Dims[1]), nil
}

// steps wants a sequence and a row of its width.
func steps(in []Shape) (Shape, error) {
	if err := operands(in, 2); err != nil {
		return Shape{}, err
	}
	x, row := in[0], in[1]
	if !x.Batch || len(x.Dims) != 2 || !row.Batch || !slices.Equal(row.Dims, x.Dims[1:]) {
		return Shape{}, fmt.Errorf("its operands are %v and %v: give [n t m] and [n m]", x, row)
	}
	return x, nil
}

// Backward is the gradient, and its sum.
func (AddEach) Backward(b *Builder, _ Node, dy ID, want []bool) []ID {
	out := []ID{dy, None}
	if want[1] {
		out[1] = b.Add("", Sum{}, dy)
	}
	return out
}

// Backward is that of a product, summed for the row.
func (MulEach) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out := []ID{None, None}
	if want[0] {
		out[0] = b.Add("", MulEach{}, dy, at.In[1])
	}
	if want[1] {
		out[1] = b.Add("", SumProducts{}, dy, at.In[0])
	}
	return out
}

// Backward gives each row the other one times the gradient.
func (SumProducts) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out := []ID{None, None}
	for i := range out {
		if want[i] {
			out[i] = b.Add("", MulEach{}, at.In[1-i], dy)
		}
	}
	return out
}

// Cost is one operation an element.
func (AddEach) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }

// Cost is one operation an element.
func (MulEach) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }

// Cost is two operations for each two elements.
func (SumProducts) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{2 * float64(in[0].Floats(n)), moved(n, in...) + moved(n, out)}
}
