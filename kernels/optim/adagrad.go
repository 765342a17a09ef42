package optim

import "github.com/monolith-go/monolith/kernels/vec"

// Adagrad is, per weight, with g' = g + WeightDecay*w:
//
//	n += g'^2
//	w -= LearningRate / sqrt(n) * g'
//
// Its slots are n, one per weight. A weight whose n is still zero is left alone, where
// the formula would be 0/0. (The original's vector path takes g instead of g' in the
// second line.)
type Adagrad struct {
	LearningRate       float32 // the original's default: 0.001
	InitialAccumulator float32 // n before the first update; the original's default: 0.1
	WeightDecay        float32
}

// NewAdagrad refuses a rate that is not positive and values that are negative or not
// finite.
func NewAdagrad(learningRate, initialAccumulator, weightDecay float32) (Adagrad, error) {
	c := checks{kind: "adagrad"}
	c.positive("learning rate", learningRate)
	c.notNegative("initial accumulator value", initialAccumulator)
	c.notNegative("weight decay", weightDecay)
	return checked(c, Adagrad{learningRate, initialAccumulator, weightDecay})
}

// SlotSize is dim.
func (Adagrad) SlotSize(dim int) int { return dim }

// InitSlots sets every n to InitialAccumulator.
func (o Adagrad) InitSlots(slots []float32) { fill(slots, o.InitialAccumulator) }

// Update is the formula above, in float32.
func (o Adagrad) Update(w, slots, g []float32, at Step) {
	lengths("adagrad", w, slots, g, len(w))
	vec.Adagrad(w, slots, g, at.rate(o.LearningRate), o.WeightDecay)
}

// Dumps is norm.
func (Adagrad) Dumps(dim int) []Dump { return planes("adagrad", dim, "norm") }
