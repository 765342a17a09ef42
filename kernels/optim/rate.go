package optim

import (
	"fmt"
	"math"
)

// Rate is a learning rate as a function of the global step.
type Rate interface {
	At(step int64) float32
}

// ConstantRate is the same at every step.
type ConstantRate float32

// NewConstantRate refuses a rate that is not positive and finite.
func NewConstantRate(rate float32) (ConstantRate, error) {
	c := checks{kind: "constant"}
	c.positive("learning rate", rate)
	return checked(c, ConstantRate(rate))
}

// At is the rate.
func (r ConstantRate) At(int64) float32 { return float32(r) }

// PolynomialDecay goes from Initial at step 0 to End at step Steps and stays there:
//
//	(Initial - End) * (1 - step/Steps)^Power + End
//
// With Cycle, Steps becomes its first multiple that step does not exceed, so the rate
// climbs again and falls more slowly. It is the rule of TensorFlow 1's function of that
// name. Steps below 0 count as 0.
type PolynomialDecay struct {
	Initial float32
	Steps   int64
	End     float32 // the original's default: 0.0001
	Power   float32 // the original's default: 1
	Cycle   bool
}

// NewPolynomialDecay returns r, or refuses rates that are negative or both 0, steps and
// powers that are not positive, and what is not finite.
func NewPolynomialDecay(r PolynomialDecay) (PolynomialDecay, error) {
	c := checks{kind: "polynomial decay"}
	c.notNegative("initial learning rate", r.Initial)
	c.notNegative("end learning rate", r.End)
	c.rule(r.Initial > 0 || r.End > 0, "end learning rate", r.End, "a positive number where the initial one is 0")
	c.positive("power", r.Power)
	if c.err == nil && r.Steps < 1 {
		c.err = fmt.Errorf("optim: polynomial decay over %d steps: give 1 or more", r.Steps)
	}
	return checked(c, r)
}

// NewWarmUp is a straight line from 0 at step 0 to rate at step steps: what an optimizer
// with warmup_steps and without a learning-rate function has.
func NewWarmUp(rate float32, steps int64) (PolynomialDecay, error) {
	return NewPolynomialDecay(PolynomialDecay{Steps: steps, End: rate, Power: 1})
}

// At is the formula above, in float64.
func (r PolynomialDecay) At(step int64) float32 {
	s, n := float64(max(step, 0)), float64(r.Steps)
	switch {
	case !r.Cycle:
		s = min(s, n)
	case s > 0:
		n *= math.Ceil(s / n)
	}
	return float32((float64(r.Initial)-float64(r.End))*math.Pow(1-s/n, float64(r.Power)) + float64(r.End))
}

// Scheduled is an optimizer whose rate follows the global step of each Step that brings
// no rate of its own.
type Scheduled struct {
	inner Optimizer
	rate  Rate
}

// NewScheduled refuses a missing part, and RMSProp, which takes no rate but its own.
func NewScheduled(inner Optimizer, rate Rate) (Scheduled, error) {
	if inner == nil || rate == nil {
		return Scheduled{}, fmt.Errorf("optim: a schedule needs an optimizer and a rate: give both")
	}
	switch inner.(type) {
	case RMSProp:
		return Scheduled{}, fmt.Errorf("optim: rmsprop takes no rate but its own: use rmspropv2 with a learning-rate function or warm-up")
	case MovingAverage:
		return Scheduled{}, fmt.Errorf("optim: moving_average has no learning rate: remove the learning-rate function or warm-up")
	}
	return Scheduled{inner, rate}, nil
}

// CheckDim asks the inner optimizer.
func (o Scheduled) CheckDim(dim int) error { return CheckDim(o.inner, dim) }

// SlotSize is the inner optimizer's.
func (o Scheduled) SlotSize(dim int) int { return o.inner.SlotSize(dim) }

// InitSlots is the inner optimizer's.
func (o Scheduled) InitSlots(slots []float32) { o.inner.InitSlots(slots) }

// Update is the inner optimizer's at the rate of at.GlobalStep.
func (o Scheduled) Update(w, slots, g []float32, at Step) {
	if at.LearningRate == 0 {
		if at.LearningRate = o.rate.At(at.GlobalStep); at.LearningRate == 0 {
			at.LearningRate = ZeroRate
		}
	}
	o.inner.Update(w, slots, g, at)
}

// Dumps are those of the inner optimizer.
func (o Scheduled) Dumps(dim int) []Dump { return shifted(o.inner, dim, 0) }
