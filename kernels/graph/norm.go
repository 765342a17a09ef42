package graph

import "fmt"

// Normalize gives each row of [n … m] the mean 0 and nearly the variance 1: (x − mean) / sqrt(variance +
// Epsilon), in float64 along the row, rounded once. A NaN or Inf makes its row NaN.
type Normalize struct{ Epsilon float32 }

// NormalizeGrad is its derivative, of dy and x: (dy − mean(dy) − y · mean(dy · y)) / sqrt(variance + Epsilon).
type NormalizeGrad struct{ Epsilon float32 }

// L2Norm divides each row of [n … m] by its length: x / sqrt(max(sum(x²), Epsilon)), in float64 along the row,
// rounded once. A NaN makes its row NaN; of Inf the place is NaN and the others 0.
type L2Norm struct{ Epsilon float32 }

// L2NormGrad is its derivative, of dy and x: (dy − y · sum(dy · y)) over the length; where Epsilon took the sum's
// place, dy over the length.
type L2NormGrad struct{ Epsilon float32 }

// LayerNorm adds Normalize times gain plus shift, rows of x's last dimension.
func (b *Builder) LayerNorm(name string, x, gain, shift ID, epsilon float32) ID {
	return b.Add(name, AddRow{}, b.Add("", MulRow{}, b.Add("", Normalize{epsilon}, x), gain), shift)
}

// Name is "normalize".
func (Normalize) Name() string { return "normalize" }

// Name is "normalize_grad".
func (NormalizeGrad) Name() string { return "normalize_grad" }

// Name is "l2_norm".
func (L2Norm) Name() string { return "l2_norm" }

// Name is "l2_norm_grad".
func (L2NormGrad) Name() string { return "l2_norm_grad" }

// Shape wants [n … m].
func (o Normalize) Shape(in []Shape) (Shape, error) { return normed(in, 1, o.Epsilon) }

// Shape wants dy and x, equal.
func (o NormalizeGrad) Shape(in []Shape) (Shape, error) { return normed(in, 2, o.Epsilon) }

// Shape wants [n … m].
func (o L2Norm) Shape(in []Shape) (Shape, error) { return normed(in, 1, o.Epsilon) }

// Shape wants dy and x, equal.
func (o L2NormGrad) Shape(in []Shape) (Shape, error) { return normed(in, 2, o.Epsilon) }

func normed(in []Shape, values int, epsilon float32) (Shape, error) {
	if !(epsilon > 0) {
		return Shape{}, fmt.Errorf("its epsilon is %g: give a number above 0, so that rows of zeros have a result", epsilon)
	}
	return rowsByLengths(in, values, false)
}

// Backward is [NormalizeGrad].
func (o Normalize) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", NormalizeGrad(o), dy, at.In[0])}
}

// Backward reports: it is derived once.
func (NormalizeGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Backward is [L2NormGrad].
func (o L2Norm) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", L2NormGrad(o), dy, at.In[0])}
}

// Backward reports: it is derived once.
func (L2NormGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost is six operations an element.
func (Normalize) Cost(n int, in []Shape, out Shape) Cost { return each(6, n, in, out) }

// Cost is the mean and the variance once more, and eight operations an element.
func (NormalizeGrad) Cost(n int, in []Shape, out Shape) Cost { return each(12, n, in, out) }

// Cost is three operations an element.
func (L2Norm) Cost(n int, in []Shape, out Shape) Cost { return each(3, n, in, out) }

// Cost is the length once more, and five operations an element.
func (L2NormGrad) Cost(n int, in []Shape, out Shape) Cost { return each(7, n, in, out) }
