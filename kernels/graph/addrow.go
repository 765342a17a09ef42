package graph

import "fmt"

// AddRow is x + row: it adds a row [m] to each of [n … m], which does not depend on the sample.
type AddRow struct{}

// Name is "add_row".
func (AddRow) Name() string { return "add_row" }

// Shape wants [n … m] and [m].
func (AddRow) Shape(in []Shape) (Shape, error) { return row(in) }

// Backward is the gradient, and its sum.
func (AddRow) Backward(b *Builder, _ Node, dy ID, want []bool) []ID {
	out := []ID{dy, None}
	if want[1] {
		out[1] = b.Add("", SumRows{}, dy)
	}
	return out
}

// Cost is one operation an element.
func (AddRow) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }

// row is the shape of x, [n … m], beside a row [m].
func row(in []Shape) (Shape, error) {
	if err := operands(in, 2); err != nil {
		return Shape{}, err
	}
	if !in[0].Batch || len(in[0].Dims) == 0 || !in[1].Equal(Fixed(in[0].Last())) {
		return Shape{}, fmt.Errorf("its operands are %v and %v: give [n … m] and a row [m]", in[0], in[1])
	}
	return in[0], nil
}
