package optim

import (
	"fmt"
	"math"
)

// StochasticRounding lets another optimizer update and then moves each weight to the
// IEEE half above or below it, up with the probability with which the mean stays what
// it was: weights train in the precision of fp16 without small steps being lost. Beyond
// ±65504 they are cut there; a weight that is NaN stays so.
//
// The draw is a hash of the seed, the step, the weight, its gradient and its position:
// the same update always rounds the same way, wherever and whenever it is made.
type StochasticRounding struct {
	inner Optimizer
	seed  uint64
}

// NewStochasticRounding wraps inner, which must be there.
func NewStochasticRounding(inner Optimizer, seed uint64) (StochasticRounding, error) {
	if inner == nil {
		return StochasticRounding{}, fmt.Errorf("optim: stochastic rounding has no optimizer inside: give one")
	}
	return StochasticRounding{inner, seed}, nil
}

// CheckDim asks the inner optimizer.
func (o StochasticRounding) CheckDim(dim int) error { return CheckDim(o.inner, dim) }

// SlotSize is the inner optimizer's.
func (o StochasticRounding) SlotSize(dim int) int { return o.inner.SlotSize(dim) }

// InitSlots is the inner optimizer's.
func (o StochasticRounding) InitSlots(slots []float32) { o.inner.InitSlots(slots) }

// Update updates and rounds.
func (o StochasticRounding) Update(w, slots, g []float32, at Step) {
	o.inner.Update(w, slots, g, at)
	key := mix(o.seed + uint64(at.GlobalStep)*golden)
	for i, x := range w {
		draw := mix(key ^ mix(uint64(math.Float32bits(x))<<32|uint64(math.Float32bits(g[i]))+uint64(i)*golden))
		w[i] = toHalf(x, float64(draw>>11)*0x1p-53)
	}
}

// toHalf is the half above x if r is below the part of the way that x has gone to it,
// else the half below.
func toHalf(x float32, r float64) float32 {
	const most = 65504
	switch {
	case x >= most:
		return most
	case x <= -most:
		return -most
	case x != x || x == 0:
		return x
	}
	_, exp := math.Frexp(float64(x))
	gap := math.Ldexp(1, max(exp, -13)-11) // between the halves around x
	below := math.Floor(float64(x) / gap)
	if r < float64(x)/gap-below {
		below++
	}
	if below == 0 {
		return float32(math.Copysign(0, float64(x)))
	}
	return float32(below * gap)
}

// Dumps are those of the inner optimizer.
func (o StochasticRounding) Dumps(dim int) []Dump { return shifted(o.inner, dim, 0) }

const golden = 0x9e3779b97f4a7c15

// mix is the finaliser of SplitMix64.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
