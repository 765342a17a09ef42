package graph

import "fmt"

// InBatchSoftmax is the loss of two towers whose batch is its own candidates: the mean over samples i of the cross
// entropy of i among all j by the logits x_i·y_j, of [n d] and [n d]. With LogQ a third operand [n 1] is what is
// subtracted from the logits of candidate j, the logarithm of how likely it is to be in a batch; it has no
// gradient. Products are float32, all else float64 in the batch's order, the result float32. Of no samples it is 0.
// A NaN anywhere makes it NaN.
type InBatchSoftmax struct{ LogQ bool }

// InBatchSoftmaxGrad is its gradient by x and by y, beside one another, [n 2d]: sums over the batch in order, in
// float32, of rows times (probability − 1 where i is j) / n.
type InBatchSoftmaxGrad struct{ LogQ bool }

// Name is "in_batch_softmax".
func (InBatchSoftmax) Name() string { return "in_batch_softmax" }

// Name is "in_batch_softmax_grad".
func (InBatchSoftmaxGrad) Name() string { return "in_batch_softmax_grad" }

// Shape wants two of [n d], and with LogQ [n 1].
func (o InBatchSoftmax) Shape(in []Shape) (Shape, error) { return Fixed(), twoTowers(in, o.LogQ) }

// Shape wants two of [n d], and with LogQ [n 1].
func (o InBatchSoftmaxGrad) Shape(in []Shape) (Shape, error) {
	if err := twoTowers(in, o.LogQ); err != nil {
		return Shape{}, err
	}
	return PerSample(2 * in[0].Size()), nil
}

func twoTowers(in []Shape, logQ bool) error {
	count := 2
	if logQ {
		count++
	}
	if err := operands(in, count); err != nil {
		return err
	}
	s, err := same(in[:2], 2)
	if err == nil && (!s.Batch || len(s.Dims) != 1) {
		err = fmt.Errorf("its operands are %v: give a vector for each sample, [n d]", s)
	}
	if err == nil && logQ && !in[2].Equal(PerSample(1)) {
		err = fmt.Errorf("its log q is %v: give one number a sample, [n 1]", in[2])
	}
	return err
}

// Backward is [InBatchSoftmaxGrad], cut in two.
func (o InBatchSoftmax) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out := []ID{None, None, None}[:len(at.In)]
	d := b.Node(at.In[0]).Shape.Size()
	both := b.times(b.Add("", InBatchSoftmaxGrad(o), at.In...), dy)
	for i := range 2 {
		if want[i] {
			out[i] = b.Add("", Slice{i * d, (i + 1) * d}, both)
		}
	}
	return out
}

// Backward reports: there is no second derivative.
func (InBatchSoftmaxGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost is a product of two vectors and an exp for each two samples.
func (InBatchSoftmax) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{float64(n) * float64(n) * float64(2*in[0].Size()+12), moved(n, in...) + moved(n, out)}
}

// Cost is three products and two sums of vectors, and three times exp, for each two samples.
func (InBatchSoftmaxGrad) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{float64(n) * float64(n) * float64(10*in[0].Size()+36), moved(n, in...) + moved(n, out)}
}
