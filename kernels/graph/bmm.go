package graph

import "fmt"

// BatchMatMul multiplies two matrices of each sample: of [n a k] and [n k b] for kind NN, of [n a k] and the
// transposed [n b k] for NT, of the transposed [n k a] and [n k b] for TN, [n a b]. An element is a sum of
// k products in float32, in the order of kernels/vec.
type BatchMatMul struct{ Kind Kind }

// Dot adds the products of the rows of two values [n m], one number a sample: two towers' logit.
func (b *Builder) Dot(name string, x, y ID) ID {
	if b.err != nil {
		return None
	}
	row := func(id ID) ID { return b.Add("", Reshape{[]int{1, b.Node(id).Shape.Size()}}, id) }
	product := b.Add("", BatchMatMul{NT}, row(x), row(y))
	return b.Add(name, Reshape{[]int{1}}, product)
}

// Name is "bmm", "bmm_nt" or "bmm_tn".
func (o BatchMatMul) Name() string { return [...]string{"bmm", "bmm_nt", "bmm_tn"}[o.Kind] }

// Shape wants factors as the type says.
func (o BatchMatMul) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 2); err != nil {
		return Shape{}, err
	}
	x, y := in[0], in[1]
	if !x.Batch || !y.Batch || len(x.Dims) != 2 || len(y.Dims) != 2 {
		return Shape{}, fmt.Errorf("factors of %v and %v: give each sample two matrices, [n a k] and [n k b]", x, y)
	}
	rows, k, k2, cols := x.Dims[0], x.Dims[1], y.Dims[0], y.Dims[1]
	switch o.Kind {
	case NT:
		k2, cols = cols, k2
	case TN:
		rows, k = k, rows
	}
	if k != k2 {
		return Shape{}, fmt.Errorf("factors of %v and %v do not fit", x, y)
	}
	return PerSample(rows, cols), nil
}

// Backward of a product is products.
func (o BatchMatMul) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out, x, y := []ID{None, None}, at.In[0], at.In[1]
	mul := func(i int, kind Kind, p, q ID) {
		if want[i] {
			out[i] = b.Add("", BatchMatMul{kind}, p, q)
		}
	}
	switch o.Kind {
	case NN:
		mul(0, NT, dy, y)
		mul(1, TN, x, dy)
	case NT:
		mul(0, NN, dy, y)
		mul(1, TN, dy, x)
	case TN:
		mul(0, NT, y, dy)
		mul(1, NN, x, dy)
	}
	return out
}

// Cost is two operations for each product of two elements.
func (o BatchMatMul) Cost(n int, in []Shape, out Shape) Cost {
	k := in[0].Dims[1]
	if o.Kind == TN {
		k = in[0].Dims[0]
	}
	return each(2*float64(k), n, in, out)
}
