package graph

import "fmt"

// CrossEntropy is the mean over the batch of the cross entropy between labels, 0 to 1, and the
// sigmoids of logits, each [n 1]: max(z,0) − z·y + log(1+exp(−|z|)), which does not overflow. Terms
// and their sum, in the batch's order, are float64, the mean float32. Of no samples it is 0. With Weighted a
// third operand [n 1] multiplies the terms; it has no gradient, and the mean is still over all samples.
type CrossEntropy struct{ Weighted bool }

// CrossEntropyGrad is its gradient by the logits, (sigmoid(z) − y) / n, computed in float64.
type CrossEntropyGrad struct{}

// MSE is the mean over the batch of (p − y)², of predictions and labels, each [n 1], in float64 and
// weighted as in CrossEntropy.
type MSE struct{ Weighted bool }

// MSEGrad is its gradient by the predictions, 2·(p − y) / n, computed in float64.
type MSEGrad struct{}

// Name is "cross_entropy".
func (CrossEntropy) Name() string { return "cross_entropy" }

// Name is "cross_entropy_grad".
func (CrossEntropyGrad) Name() string { return "cross_entropy_grad" }

// Name is "mse".
func (MSE) Name() string { return "mse" }

// Name is "mse_grad".
func (MSEGrad) Name() string { return "mse_grad" }

// Shape wants two of [n 1], and with Weighted a third.
func (o CrossEntropy) Shape(in []Shape) (Shape, error) { return Fixed(), weighted(in, o.Weighted) }

// Shape wants two of [n 1].
func (CrossEntropyGrad) Shape(in []Shape) (Shape, error) { return PerSample(1), scores(in) }

// Shape wants two of [n 1], and with Weighted a third.
func (o MSE) Shape(in []Shape) (Shape, error) { return Fixed(), weighted(in, o.Weighted) }

// Shape wants two of [n 1].
func (MSEGrad) Shape(in []Shape) (Shape, error) { return PerSample(1), scores(in) }

func scores(in []Shape) error { return numbers(in, 2) }

func weighted(in []Shape, weights bool) error {
	if weights {
		return numbers(in, 3)
	}
	return numbers(in, 2)
}

// numbers wants so many of [n 1].
func numbers(in []Shape, count int) error {
	s, err := same(in, count)
	if err == nil && !s.Equal(PerSample(1)) {
		err = fmt.Errorf("its operands are %v: give one number a sample, [n 1]", s)
	}
	return err
}

// Backward is [CrossEntropyGrad]; labels have no gradient.
func (CrossEntropy) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	return lossBackward(b, at, dy, want, CrossEntropyGrad{})
}

// Backward is [MSEGrad]; labels have no gradient.
func (MSE) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	return lossBackward(b, at, dy, want, MSEGrad{})
}

func lossBackward(b *Builder, at Node, dy ID, want []bool, grad Op) []ID {
	out := []ID{None, None, None}[:len(at.In)]
	if want[1] || len(want) > 2 && want[2] {
		b.Fail("graph: node %q (%s): a gradient by its labels or weights is wanted: they have none", at.Name, at.Op.Name())
		return out
	}
	d := b.Add("", grad, at.In[:2]...)
	if len(at.In) > 2 {
		d = b.Add("", Mul{}, d, at.In[2])
	}
	out[0] = b.times(d, dy)
	return out
}

// Backward reports: there is no second derivative.
func (CrossEntropyGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Backward reports: there is no second derivative.
func (MSEGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost counts exp and log.
func (CrossEntropy) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{25 * float64(n), moved(n, in...) + moved(n, out)}
}

// Cost counts exp.
func (CrossEntropyGrad) Cost(n int, in []Shape, out Shape) Cost { return each(14, n, in, out) }

// Cost is a difference, its square and a sum.
func (MSE) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{3 * float64(n), moved(n, in...) + moved(n, out)}
}

// Cost is a difference and a product.
func (MSEGrad) Cost(n int, in []Shape, out Shape) Cost { return each(3, n, in, out) }
