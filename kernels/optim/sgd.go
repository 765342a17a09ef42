package optim

import "github.com/monolith-go/monolith/kernels/vec"

// SGD is w -= LearningRate * g. It has no slots.
type SGD struct {
	LearningRate float32 // the original's default: 0.01
}

// NewSGD refuses a rate that is not positive and finite.
func NewSGD(learningRate float32) (SGD, error) {
	c := checks{kind: "sgd"}
	c.positive("learning rate", learningRate)
	return checked(c, SGD{learningRate})
}

// SlotSize is 0.
func (SGD) SlotSize(int) int { return 0 }

// InitSlots has nothing to set.
func (SGD) InitSlots([]float32) {}

// Update is the formula above, in float32.
func (o SGD) Update(w, slots, g []float32, at Step) {
	lengths("sgd", w, slots, g, 0)
	vec.SGD(w, g, at.rate(o.LearningRate))
}

// Dumps is one message without fields.
func (SGD) Dumps(dim int) []Dump { return planes("sgd", dim) }
