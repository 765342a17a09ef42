package graph

import "fmt"

// Reshape gives the floats of a sample the dimensions Dims, in the same order.
type Reshape struct{ Dims []int }

// Name is "reshape".
func (Reshape) Name() string { return "reshape" }

// Shape wants a value of the batch with as many floats a sample.
func (o Reshape) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 1); err != nil {
		return Shape{}, err
	}
	out := PerSample(o.Dims...)
	if err := out.check(); err != nil {
		return Shape{}, err
	}
	if !in[0].Batch || in[0].Size() != out.Size() {
		return Shape{}, fmt.Errorf("%v cannot become %v: keep the number of floats a sample", in[0], out)
	}
	return out, nil
}

// Backward gives the gradient the operand's dimensions.
func (Reshape) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", Reshape{b.Node(at.In[0]).Shape.Dims}, dy)}
}

// Cost is nothing.
func (Reshape) Cost(int, []Shape, Shape) Cost { return Cost{} }
