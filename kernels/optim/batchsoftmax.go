package optim

import "fmt"

// BatchSoftmax estimates how many steps lie between two occurrences of an id, as
// batch-softmax training needs it. The gradient does not count:
//
//	w    = (1 - LearningRate)*w + LearningRate*(step - last)
//	last = step
//
// Its vector has one weight; its slots are the last step, from 0. A step below 0 counts
// as 0.
type BatchSoftmax struct {
	LearningRate float32 // the original's default: 0.1
}

// NewBatchSoftmax refuses a rate that is not above 0 and at most 1.
func NewBatchSoftmax(learningRate float32) (BatchSoftmax, error) {
	c := checks{kind: "batch_softmax"}
	c.rule(learningRate > 0 && learningRate <= 1, "learning rate", learningRate, "a number above 0 and up to 1")
	return checked(c, BatchSoftmax{learningRate})
}

// CheckDim takes 1 alone.
func (BatchSoftmax) CheckDim(dim int) error {
	if dim != 1 {
		return fmt.Errorf("optim: batch_softmax on %d weights: it keeps one number, give dim 1", dim)
	}
	return nil
}

// SlotSize is 2, or -1 for another dim than 1.
func (BatchSoftmax) SlotSize(dim int) int {
	if dim != 1 {
		return -1
	}
	return intSlots
}

// InitSlots sets the last step to 0.
func (BatchSoftmax) InitSlots(slots []float32) { PutInt(slots, 0) }

// Update is the formula above, in float64.
func (o BatchSoftmax) Update(w, slots, g []float32, at Step) {
	lengths("batch_softmax", w, slots, g, o.SlotSize(len(w)))
	rate, step := float64(at.rate(o.LearningRate)), max(at.GlobalStep, 0)
	w[0] = float32((1-rate)*float64(w[0]) + rate*float64(step-Int(slots)))
	PutInt(slots, step)
}

// Dumps is global_step.
func (BatchSoftmax) Dumps(int) []Dump {
	return []Dump{{"batch_softmax", []Plane{{Name: "global_step", To: intSlots, Integer: true}}}}
}
