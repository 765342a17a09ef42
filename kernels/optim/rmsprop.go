package optim

import "math"

// RMSProp is, per weight, with d = g + WeightDecay*w:
//
//	n  = Momentum*n + (1-Momentum)*d^2
//	w -= LearningRate / (sqrt(n) + 1) * d
//
// Its slots are the n, from 0. As in the original, it always takes its own rate: that
// of a Step, and so any schedule, does not count. RMSPropV2 takes it.
type RMSProp struct {
	LearningRate float32 // the original's default: 0.01
	WeightDecay  float32
	Momentum     float32 // the original's default: 0.9
}

// NewRMSProp returns o, or refuses a rate that is not positive, a momentum outside of 0
// to 1, a negative decay, and what is not finite.
func NewRMSProp(o RMSProp) (RMSProp, error) {
	c := checks{kind: "rmsprop"}
	c.positive("learning rate", o.LearningRate)
	c.notNegative("weight decay", o.WeightDecay)
	c.fraction("momentum", o.Momentum)
	return checked(c, o)
}

// SlotSize is dim.
func (RMSProp) SlotSize(dim int) int { return dim }

// InitSlots sets zeros.
func (RMSProp) InitSlots(slots []float32) { clear(slots) }

// Update is the formula above, in float64.
func (o RMSProp) Update(w, slots, g []float32, _ Step) {
	lengths("rmsprop", w, slots, g, len(w))
	meanSquare(w, slots, g, o.LearningRate, o.WeightDecay, o.Momentum, 1-float64(o.Momentum))
}

func meanSquare(w, n, g []float32, rate, wd, mu float32, share float64) {
	for i := range w {
		x := float64(w[i])
		d := float64(g[i]) + float64(wd)*x
		a := float64(mu)*float64(n[i]) + share*d*d
		n[i] = float32(a)
		w[i] = float32(x - float64(rate)/(math.Sqrt(a)+1)*d)
	}
}

// Dumps is n.
func (RMSProp) Dumps(dim int) []Dump { return planes("rmsprop", dim, "n") }

// RMSPropV2 is RMSProp with
//
//	n = Momentum*n + d^2
//
// and takes the rate of a Step.
type RMSPropV2 struct {
	LearningRate float32 // the original's default: 0.01
	WeightDecay  float32
	Momentum     float32 // the original's default: 0.9
}

// NewRMSPropV2 returns o, or refuses what NewRMSProp refuses.
func NewRMSPropV2(o RMSPropV2) (RMSPropV2, error) {
	c := checks{kind: "rmspropv2"}
	c.positive("learning rate", o.LearningRate)
	c.notNegative("weight decay", o.WeightDecay)
	c.fraction("momentum", o.Momentum)
	return checked(c, o)
}

// SlotSize is dim.
func (RMSPropV2) SlotSize(dim int) int { return dim }

// InitSlots sets zeros.
func (RMSPropV2) InitSlots(slots []float32) { clear(slots) }

// Update is the formula above, in float64.
func (o RMSPropV2) Update(w, slots, g []float32, at Step) {
	lengths("rmspropv2", w, slots, g, len(w))
	meanSquare(w, slots, g, at.rate(o.LearningRate), o.WeightDecay, o.Momentum, 1)
}

// Dumps is n.
func (RMSPropV2) Dumps(dim int) []Dump { return planes("rmspropv2", dim, "n") }
