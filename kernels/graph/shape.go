package graph

import (
	"fmt"
	"slices"
	"strings"
)

// MaxSize bounds the floats of a value, of one sample where it is the batch's: offsets of a
// batch of 2^20 samples then fit 63 bits many times over.
const MaxSize = 1 << 31

// Shape is a value's: n times Dims, row by row, where it is the batch's, Dims alone otherwise. No
// Dims is one number.
type Shape struct {
	Batch bool
	Dims  []int
}

// PerSample is the shape of a value that each sample has.
func PerSample(dims ...int) Shape { return Shape{true, dims} }

// Fixed is the shape of a value that does not depend on the batch's size.
func Fixed(dims ...int) Shape { return Shape{false, dims} }

// Size is the number of floats, of one sample where the value is the batch's.
func (s Shape) Size() int {
	n := 1
	for _, d := range s.Dims {
		n *= d
	}
	return n
}

// Floats is the number of floats with n samples.
func (s Shape) Floats(n int) int {
	if s.Batch {
		return n * s.Size()
	}
	return s.Size()
}

// Last is the last dimension, 1 where there is none, and Rows how many of it a sample has.
func (s Shape) Last() int {
	if len(s.Dims) == 0 {
		return 1
	}
	return s.Dims[len(s.Dims)-1]
}

// Rows is Size over Last.
func (s Shape) Rows() int { return s.Size() / s.Last() }

// Equal says whether the shapes are the same.
func (s Shape) Equal(t Shape) bool { return s.Batch == t.Batch && slices.Equal(s.Dims, t.Dims) }

// String is like "[n 3 4]", n being the batch.
func (s Shape) String() string {
	var b []string
	if s.Batch {
		b = append(b, "n")
	}
	for _, d := range s.Dims {
		b = append(b, fmt.Sprint(d))
	}
	return "[" + strings.Join(b, " ") + "]"
}

func (s Shape) check() error {
	size := 1
	for _, d := range s.Dims {
		if d < 1 || d > MaxSize/size {
			return fmt.Errorf("the shape %v: give dimensions of 1 or more, %d floats in all at most", s, MaxSize)
		}
		size *= d
	}
	return nil
}

// operands reports another number of operands than asked for.
func operands(in []Shape, n int) error {
	if len(in) != n {
		return fmt.Errorf("it has %d operands: give %d", len(in), n)
	}
	return nil
}

// same is the shape that n operands have in common.
func same(in []Shape, n int) (Shape, error) {
	if err := operands(in, n); err != nil {
		return Shape{}, err
	}
	for _, s := range in[1:] {
		if !s.Equal(in[0]) {
			return Shape{}, fmt.Errorf("its operands have the shapes %v and %v: make them equal", in[0], s)
		}
	}
	return in[0], nil
}
