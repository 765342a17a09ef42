package graph

import "fmt"

// SumRows is the sum over the batch and all rows of each of its samples: [n … m] becomes [m]. It is
// a chain of additions in order, in float32, that starts from 0.
type SumRows struct{}

// Name is "sum_rows".
func (SumRows) Name() string { return "sum_rows" }

// Shape wants a value of the batch with at least one dimension.
func (SumRows) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 1); err != nil {
		return Shape{}, err
	}
	if !in[0].Batch || len(in[0].Dims) == 0 {
		return Shape{}, fmt.Errorf("its operand is %v: give [n … m]", in[0])
	}
	return Fixed(in[0].Last()), nil
}

// Backward gives each row the gradient.
func (SumRows) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", Broadcast{Dims: b.Node(at.In[0]).Shape.Dims}, dy)}
}

// Cost is an addition for each element.
func (SumRows) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{float64(in[0].Floats(n)), moved(n, in[0], out)}
}

// Broadcast repeats a row [m] in all of [n Dims], whose last dimension is m.
type Broadcast struct{ Dims []int }

// Name is "broadcast".
func (Broadcast) Name() string { return "broadcast" }

// Shape wants a row.
func (o Broadcast) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 1); err != nil {
		return Shape{}, err
	}
	out := PerSample(o.Dims...)
	if len(o.Dims) == 0 || !in[0].Equal(Fixed(out.Last())) {
		return Shape{}, fmt.Errorf("a row of %v cannot fill %v: give one as long as the last dimension", in[0], out)
	}
	return out, nil
}

// Backward is the sum.
func (Broadcast) Backward(b *Builder, _ Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", SumRows{}, dy)}
}

// Cost is that of writing it.
func (Broadcast) Cost(n int, in []Shape, out Shape) Cost { return each(0, n, in, out) }
