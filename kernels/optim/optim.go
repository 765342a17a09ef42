// Package optim turns a gradient into a change of weights.
//
// An Optimizer is a value without state of its own: what it remembers of a vector lies
// in that vector's slots, which the caller keeps beside the weights.
package optim

import (
	"fmt"
	"math"
)

// Optimizer updates one vector of weights, or one dense variable, in place.
type Optimizer interface {
	// SlotSize is the number of float32 kept for a vector of dim weights.
	SlotSize(dim int) int
	// InitSlots sets the slots of a vector that has never been updated.
	InitSlots(slots []float32)
	// Update applies gradient g to w. len(g) == len(w) and len(slots) ==
	// SlotSize(len(w)); other lengths panic. g is not changed.
	Update(w, slots, g []float32, at Step)
}

// Step says when an update happens.
type Step struct {
	// LearningRate replaces the optimizer's own; 0 leaves it.
	LearningRate float32
	// GlobalStep counts the updates of the model so far, from 0.
	GlobalStep int64
}

func (s Step) rate(own float32) float32 {
	if s.LearningRate != 0 {
		return s.LearningRate
	}
	return own
}

// Adagrad is, per weight, with g' = g + WeightDecay*w:
//
//	n += g'^2
//	w -= LearningRate / sqrt(n) * g'
//
// Its slots are n, one per weight. A weight whose n is still zero is left alone, where
// the formula would be 0/0.
type Adagrad struct {
	LearningRate       float32
	InitialAccumulator float32 // n before the first update; the original's default is 0.1
	WeightDecay        float32
}

// NewAdagrad refuses a rate that is not positive and values that are negative or not
// finite.
func NewAdagrad(learningRate, initialAccumulator, weightDecay float32) (Adagrad, error) {
	switch {
	case !(learningRate > 0) || !finite(learningRate):
		return Adagrad{}, fmt.Errorf("optim: adagrad learning rate is %g: give a positive number", learningRate)
	case !(initialAccumulator >= 0) || !finite(initialAccumulator):
		return Adagrad{}, fmt.Errorf("optim: adagrad initial accumulator value is %g: give zero or a positive number", initialAccumulator)
	case !(weightDecay >= 0) || !finite(weightDecay):
		return Adagrad{}, fmt.Errorf("optim: adagrad weight decay is %g: give zero or a positive number", weightDecay)
	}
	return Adagrad{learningRate, initialAccumulator, weightDecay}, nil
}

// SlotSize is dim.
func (Adagrad) SlotSize(dim int) int { return dim }

// InitSlots sets every n to InitialAccumulator.
func (o Adagrad) InitSlots(slots []float32) {
	for i := range slots {
		slots[i] = o.InitialAccumulator
	}
}

// Update is the formula above, in float32.
func (o Adagrad) Update(w, slots, g []float32, at Step) {
	if len(slots) != len(w) || len(g) != len(w) {
		panic(fmt.Sprintf("optim: adagrad on %d weights got %d slots and %d gradients", len(w), len(slots), len(g)))
	}
	slots, g = slots[:len(w)], g[:len(w)]
	lr := at.rate(o.LearningRate)
	for i, x := range w {
		d := g[i] + float32(o.WeightDecay*x)
		n := slots[i] + float32(d*d)
		slots[i] = n
		if n > 0 {
			w[i] = x - float32(lr/float32(math.Sqrt(float64(n)))*d)
		}
	}
}

// SGD is w -= LearningRate * g. It has no slots.
type SGD struct{ LearningRate float32 }

// NewSGD refuses a rate that is not positive and finite.
func NewSGD(learningRate float32) (SGD, error) {
	if !(learningRate > 0) || !finite(learningRate) {
		return SGD{}, fmt.Errorf("optim: sgd learning rate is %g: give a positive number", learningRate)
	}
	return SGD{learningRate}, nil
}

// SlotSize is 0.
func (SGD) SlotSize(int) int { return 0 }

// InitSlots has nothing to set.
func (SGD) InitSlots([]float32) {}

// Update is the formula above, in float32.
func (o SGD) Update(w, slots, g []float32, at Step) {
	if len(slots) != 0 || len(g) != len(w) {
		panic(fmt.Sprintf("optim: sgd on %d weights got %d slots and %d gradients", len(w), len(slots), len(g)))
	}
	g = g[:len(w)]
	lr := at.rate(o.LearningRate)
	for i := range w {
		w[i] -= float32(lr * g[i])
	}
}

func finite(x float32) bool { return x-x == 0 }
