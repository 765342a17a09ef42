package graph

import "fmt"

// Softmax makes each row of [n … m] exp(x) over the row's sum of them, less the largest x before; in float64 along
// the row, rounded once. With Lengths its second operand, [n 1], says how many places of a sample's rows count: those
// k with k < length, none where that is NaN. The others are 0 and are not read. A NaN or Inf among those that
// count makes them all NaN, but −Inf is 0 where others are finite.
type Softmax struct{ Lengths bool }

// SoftmaxGrad is its derivative, of dy, y that Softmax gave and its lengths: y · (dy − the row's sum of y · dy), 0
// where a place does not count.
type SoftmaxGrad struct{ Lengths bool }

// Name is "softmax".
func (Softmax) Name() string { return "softmax" }

// Name is "softmax_grad".
func (SoftmaxGrad) Name() string { return "softmax_grad" }

// Shape wants [n … m], and with Lengths [n 1].
func (o Softmax) Shape(in []Shape) (Shape, error) { return rowsByLengths(in, 1, o.Lengths) }

// Shape wants dy and y, equal, and with Lengths [n 1].
func (o SoftmaxGrad) Shape(in []Shape) (Shape, error) { return rowsByLengths(in, 2, o.Lengths) }

// rowsByLengths wants some equal [n … m], and lengths behind them.
func rowsByLengths(in []Shape, values int, lengths bool) (Shape, error) {
	count := values
	if lengths {
		count++
	}
	if err := operands(in, count); err != nil {
		return Shape{}, err
	}
	if _, err := same(in[:values], values); err != nil {
		return Shape{}, err
	}
	if !in[0].Batch || len(in[0].Dims) == 0 {
		return Shape{}, fmt.Errorf("its operand is %v: give [n … m]", in[0])
	}
	if lengths && !in[values].Equal(PerSample(1)) {
		return Shape{}, fmt.Errorf("its lengths are %v: give one a sample, [n 1]", in[values])
	}
	return in[0], nil
}

// Backward is [SoftmaxGrad]; lengths have no gradient.
func (o Softmax) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out := []ID{None, None}[:len(at.In)]
	if want[0] {
		out[0] = b.Add("", SoftmaxGrad(o), append([]ID{dy, at.ID}, at.In[1:]...)...)
	}
	return out
}

// Backward reports: it is derived once.
func (SoftmaxGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost counts exp, a comparison, a difference, a sum and a product.
func (Softmax) Cost(n int, in []Shape, out Shape) Cost { return each(14, n, in, out) }

// Cost is four operations an element.
func (SoftmaxGrad) Cost(n int, in []Shape, out Shape) Cost { return each(4, n, in, out) }
