package graph

import (
	"fmt"
	"slices"
)

// Sum adds up a sample's values along a dimension, the first of which is 0, and drops it: with Axis 0 [n a b]
// becomes [n b]. It is a chain of additions in order, in float32, that starts from 0.
type Sum struct{ Axis int }

// Repeat has each value of a sample Count times along a new dimension: with Axis 0 [n b] becomes
// [n Count b].
type Repeat struct{ Axis, Count int }

// Mean adds [Sum] over the dimension's size.
func (b *Builder) Mean(name string, axis int, x ID) ID {
	sum := b.Add("", Sum{axis}, x)
	if b.err != nil {
		return None
	}
	return b.Add(name, Scale{Factor: 1 / float32(b.Node(x).Shape.Dims[axis])}, sum)
}

// Name is "sum".
func (Sum) Name() string { return "sum" }

// Name is "repeat".
func (Repeat) Name() string { return "repeat" }

// Shape wants a value of the batch that has the dimension.
func (o Sum) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 1); err != nil {
		return Shape{}, err
	}
	if !in[0].Batch || o.Axis < 0 || o.Axis >= len(in[0].Dims) {
		return Shape{}, fmt.Errorf("its operand is %v: give one of the batch with more than %d dimensions a sample", in[0], o.Axis)
	}
	return PerSample(slices.Delete(slices.Clone(in[0].Dims), o.Axis, o.Axis+1)...), nil
}

// Shape wants a value of the batch that has the dimensions before.
func (o Repeat) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 1); err != nil {
		return Shape{}, err
	}
	if !in[0].Batch || o.Axis < 0 || o.Axis > len(in[0].Dims) {
		return Shape{}, fmt.Errorf("its operand is %v: give one of the batch with at least %d dimensions a sample", in[0], o.Axis)
	}
	return PerSample(slices.Insert(slices.Clone(in[0].Dims), o.Axis, o.Count)...), nil
}

// Backward repeats the gradient.
func (o Sum) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", Repeat{o.Axis, b.Node(at.In[0]).Shape.Dims[o.Axis]}, dy)}
}

// Backward adds the gradients up.
func (o Repeat) Backward(b *Builder, _ Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", Sum{o.Axis}, dy)}
}

// Cost is an addition for each element.
func (Sum) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{float64(in[0].Floats(n)), moved(n, in[0], out)}
}

// Cost is that of moving.
func (Repeat) Cost(n int, in []Shape, out Shape) Cost { return each(0, n, in, out) }

// Around is how often a sample has the dimension at axis, that dimension, and how many floats lie behind each of it.
func (s Shape) Around(axis int) (outer, count, inner int) {
	return PerSample(s.Dims[:axis]...).Size(), s.Dims[axis], PerSample(s.Dims[axis+1:]...).Size()
}
