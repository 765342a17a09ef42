package graph

import (
	"fmt"
	"slices"
)

// Kind says which operand of a product is the other way round.
type Kind int

// The kinds. [n … k] has as many rows as n times the dimensions before k.
const (
	NN Kind = iota // [n … k] times [k m] is [n … m]: a layer
	NT             // [n … m] times the transposed [k m] is [n … k]: its gradient by its input
	TN             // the transposed [n … k] times [n … m] is [k m], summed over all rows: its gradient by its weights
)

// Finish is what happens to a product before it is stored.
type Finish int

// The finishes.
const (
	Keep   Finish = iota
	ToReLU        // as ReLU does
	ToMask        // as Mask does, by the last operand
)

// Precision is what the factors of a product become before they are multiplied.
type Precision int

// The precisions.
const (
	FP32 Precision = iota
	BF16           // bfloat16, each for itself
	INT8           // whole numbers to 127 times a scale of each row of the left factor and each column of the right one
)

// MatMul multiplies. Its operands are the two factors, then with Bias (kind NN) a row [m] that each
// row of the product starts from, then for ToMask the mask, of the product's shape. Each element is
// one chain of multiply-adds in order, with INT8 an exact sum; bounds, NaN and Inf are kernels/gemm's. INT8 is
// for layers (kind NN) by a variable, which is quantised once, and has no derivative.
//
// Finish is what compilers set, as [ReLU] and [Mask] of a product come to the same bits.
type MatMul struct {
	Kind      Kind
	Bias      bool
	Finish    Finish
	Precision Precision
}

// Dense adds x·w + bias, [n … in] by [in out] and [out].
func (b *Builder) Dense(name string, x, w, bias ID, p Precision) ID {
	return b.Add(name, MatMul{Bias: true, Precision: p}, x, w, bias)
}

// Name is "matmul", "matmul_nt" or "matmul_tn".
func (o MatMul) Name() string {
	return [...]string{"matmul", "matmul_nt", "matmul_tn"}[o.Kind]
}

// Mask is the place of ToMask's mask among the operands.
func (o MatMul) Mask() int {
	if o.Bias {
		return 3
	}
	return 2
}

// Shape wants factors as [Kind] says.
func (o MatMul) Shape(in []Shape) (Shape, error) {
	n := o.Mask()
	if o.Finish == ToMask {
		n++
	}
	if err := operands(in, n); err != nil {
		return Shape{}, err
	}
	if o.Kind != NN && (o.Bias || o.Finish == ToReLU) || o.Kind == TN && o.Finish != Keep {
		return Shape{}, fmt.Errorf("only a layer's product has a bias and an activation, and no sum over the batch a mask")
	}
	if o.Precision == INT8 && (o.Kind != NN || o.Finish == ToMask) {
		return Shape{}, fmt.Errorf("only a layer's product is of int8, without a mask")
	}
	a, w := in[0], in[1]
	misfit := fmt.Errorf("factors of %v and %v do not fit", a, w)
	if !a.Batch || len(a.Dims) == 0 {
		return Shape{}, misfit
	}
	lead := a.Dims[:len(a.Dims)-1]
	var out Shape
	switch {
	case o.Kind == TN:
		if !w.Batch || len(w.Dims) != len(a.Dims) || !slices.Equal(w.Dims[:len(lead)], lead) {
			return Shape{}, misfit
		}
		return Fixed(a.Last(), w.Last()), nil
	case w.Batch || len(w.Dims) != 2 || a.Last() != w.Dims[int(o.Kind)]:
		return Shape{}, misfit
	default:
		out = PerSample(append(slices.Clone(lead), w.Dims[1-int(o.Kind)])...)
	}
	if o.Bias && !in[2].Equal(Fixed(out.Last())) {
		return Shape{}, fmt.Errorf("a bias of %v for a product of %v: give one number for each of the %d columns", in[2], out, out.Last())
	}
	if o.Finish == ToMask && !in[o.Mask()].Equal(out) {
		return Shape{}, fmt.Errorf("a mask of %v for a product of %v: make them equal", in[o.Mask()], out)
	}
	return out, nil
}

// Backward of a product is products.
func (o MatMul) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out := []ID{None, None, None, None}[:len(at.In)]
	if o.Precision == INT8 {
		b.Fail("graph: node %q (%s): a product of int8 has no derivative: it is for serving", at.Name, o.Name())
		return out
	}
	switch o.Finish {
	case ToReLU:
		dy = b.Add("", Mask{}, dy, at.ID)
	case ToMask:
		dy = b.Add("", Mask{}, dy, at.In[o.Mask()])
	}
	x, w := at.In[0], at.In[1]
	mul := func(i int, kind Kind, p, q ID) {
		if want[i] {
			out[i] = b.Add("", MatMul{Kind: kind, Precision: o.Precision}, p, q)
		}
	}
	if o.Bias && want[2] {
		out[2] = b.Add("", SumRows{}, dy)
	}
	switch o.Kind {
	case NN:
		mul(1, TN, x, dy)
		mul(0, NT, dy, w)
	case NT:
		mul(1, TN, dy, x)
		mul(0, NN, dy, w)
	case TN:
		mul(1, NN, x, dy)
		mul(0, NT, w, dy)
	}
	return out
}

// Cost is two operations for each product of two elements, and one for what starts or finishes one.
func (o MatMul) Cost(n int, in []Shape, out Shape) Cost {
	k := in[0].Last()
	if o.Kind == TN {
		k = n * in[0].Rows()
	}
	ops := 2 * float64(k)
	if o.Finish != Keep {
		ops++
	}
	return each(ops, n, in, out)
}
