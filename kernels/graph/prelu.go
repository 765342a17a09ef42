package graph

// PReLU is x where x is above 0 or NaN, else x times its column's slope: of [n … m] and a row [m].
type PReLU struct{}

// PReLUGrad is its derivative by x, of dy, x and the slopes: dy where x is above 0 or NaN, else dy times the
// slope.
type PReLUGrad struct{}

// Name is "prelu".
func (PReLU) Name() string { return "prelu" }

// Name is "prelu_grad".
func (PReLUGrad) Name() string { return "prelu_grad" }

// Shape wants [n … m] and [m].
func (PReLU) Shape(in []Shape) (Shape, error) { return row(in) }

// Shape wants dy and x, equal, and [m].
func (PReLUGrad) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 3); err != nil {
		return Shape{}, err
	}
	if _, err := same(in[:2], 2); err != nil {
		return Shape{}, err
	}
	return row(in[1:])
}

// Backward is [PReLUGrad], and for the slopes the sum of dy times what of x is not above 0.
func (PReLU) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out, x := []ID{None, None}, at.In[0]
	if want[0] {
		out[0] = b.Add("", PReLUGrad{}, dy, x, at.In[1])
	}
	if want[1] {
		above := b.Add("", Scale{Factor: -1}, b.Add("", ReLU{}, x))
		out[1] = b.Add("", SumRows{}, b.Add("", Mul{}, dy, b.Add("", Add{}, x, above)))
	}
	return out
}

// Backward reports: it is derived once.
func (PReLUGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost is two operations an element.
func (PReLU) Cost(n int, in []Shape, out Shape) Cost { return each(2, n, in, out) }

// Cost is two operations an element.
func (PReLUGrad) Cost(n int, in []Shape, out Shape) Cost { return each(2, n, in, out) }
