package graph

import "fmt"

// FFM is the second-order term of a field-aware factorization machine over [n fields fields dim], where i, j is
// field i's embedding for field j: the sum over i < j of the products of i, j and j, i, [n 1].
type FFM struct{}

// FFMGrad is its gradient by the embeddings, given dy: dy times embedding j, i for i, j, and 0 for i, i
// even where dy is NaN.
type FFMGrad struct{}

// Name is "ffm".
func (FFM) Name() string { return "ffm" }

// Name is "ffm_grad".
func (FFMGrad) Name() string { return "ffm_grad" }

// Shape wants embeddings by field and field.
func (FFM) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 1); err != nil {
		return Shape{}, err
	}
	if d := in[0].Dims; !in[0].Batch || len(d) != 3 || d[0] != d[1] {
		return Shape{}, fmt.Errorf("its operand is %v: give an embedding of each field for each field, [n fields fields dim]", in[0])
	}
	return PerSample(1), nil
}

// Shape wants the embeddings and [n 1].
func (FFMGrad) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 2); err != nil {
		return Shape{}, err
	}
	if !in[1].Equal(PerSample(1)) {
		return Shape{}, fmt.Errorf("its operands are %v: give the embeddings and [n 1]", in)
	}
	_, err := FFM{}.Shape(in[:1])
	return in[0], err
}

// Backward is [FFMGrad].
func (FFM) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", FFMGrad{}, at.In[0], dy)}
}

// Backward reports: it is derived once.
func (FFMGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost is a multiply-add for each two floats.
func (FFM) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{float64(in[0].Floats(n)), moved(n, in...) + moved(n, out)}
}

// Cost is a product an element.
func (FFMGrad) Cost(n int, in []Shape, out Shape) Cost { return each(1, n, in, out) }
