package optim

import (
	"fmt"
	"sync"
)

// DC compensates for delay: a gradient was computed on weights that others have changed
// meanwhile. With c the last change of the weights, which the gradient has most likely
// not seen,
//
//	g' = g + Lambda * g^2 * c
//
// goes to the optimizer inside. Its slots are c, from 0, and then those of the inner
// one. The original has the formula in a class that nothing builds, and no message for
// c: a checkpoint in its format carries the inner slots alone.
type DC struct {
	lambda  float32
	inner   Optimizer
	scratch sync.Pool // *[]float32
}

// NewDC refuses a lambda that is negative or not finite, and no inner optimizer.
func NewDC(lambda float32, inner Optimizer) (*DC, error) {
	c := checks{kind: "dc"}
	c.notNegative("lambda", lambda)
	if c.err == nil && inner == nil {
		c.err = fmt.Errorf("optim: dc has no optimizer inside: give the one that takes the compensated gradient, such as sgd")
	}
	if c.err != nil {
		return nil, c.err
	}
	return &DC{lambda: lambda, inner: inner, scratch: sync.Pool{New: func() any { return new([]float32) }}}, nil
}

// CheckDim asks the inner optimizer.
func (o *DC) CheckDim(dim int) error { return CheckDim(o.inner, dim) }

// SlotSize is dim and what the inner optimizer needs.
func (o *DC) SlotSize(dim int) int {
	inner := o.inner.SlotSize(dim)
	if inner < 0 {
		return inner
	}
	return dim + inner
}

// InitSlots cannot know where the inner slots begin before it finds the dim.
func (o *DC) InitSlots(slots []float32) {
	dim := 0
	for dim < len(slots) && o.SlotSize(dim) != len(slots) {
		dim++
	}
	if o.SlotSize(dim) != len(slots) {
		panic(fmt.Sprintf("optim: dc got %d slots, which it needs for no number of weights", len(slots)))
	}
	clear(slots[:dim])
	o.inner.InitSlots(slots[dim:])
}

// Update is the formula above, in float64, and then the inner optimizer's.
func (o *DC) Update(w, slots, g []float32, at Step) {
	dim := len(w)
	lengths("dc", w, slots, g, o.SlotSize(dim))
	buf := o.scratch.Get().(*[]float32)
	defer o.scratch.Put(buf)
	if cap(*buf) < 2*dim {
		*buf = make([]float32, 2*dim)
	}
	before, grad, last := (*buf)[:dim], (*buf)[dim:2*dim], slots[:dim]
	copy(before, w)
	for i, x := range g {
		d := float64(x)
		grad[i] = float32(d + float64(o.lambda)*d*d*float64(last[i]))
	}
	o.inner.Update(w, slots[dim:], grad, at)
	for i, x := range w {
		last[i] = x - before[i]
	}
}

// Dumps are those of the inner optimizer.
func (o *DC) Dumps(dim int) []Dump { return shifted(o.inner, dim, dim) }

// shifted are the dumps of o whose slots begin at by.
func shifted(o Optimizer, dim, by int) []Dump {
	d, ok := o.(Dumper)
	if !ok {
		return nil
	}
	dumps := d.Dumps(dim)
	for _, d := range dumps {
		for i := range d.Planes {
			d.Planes[i].From += by
			d.Planes[i].To += by
		}
	}
	return dumps
}
