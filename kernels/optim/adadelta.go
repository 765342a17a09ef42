package optim

import "math"

// Adadelta is, per weight, with g' = g + WeightDecay*w and r = AveragingRatio:
//
//	a  = r*a + (1-r)*g'^2
//	d  = sqrt(u + Epsilon) / sqrt(a + Epsilon) * g'
//	w -= LearningRate * d
//	u  = r*u + (1-r)*d^2
//
// Its slots are the a and then the u, from 0.
type Adadelta struct {
	LearningRate   float32 // the original's default: 0.01
	WeightDecay    float32
	AveragingRatio float32 // the original's default: 0.9
	Epsilon        float32 // the original's default: 0.01
}

// NewAdadelta returns o, or refuses a rate or epsilon that is not positive, a ratio
// outside of 0 to 1, a negative decay, and what is not finite.
func NewAdadelta(o Adadelta) (Adadelta, error) {
	c := checks{kind: "adadelta"}
	c.positive("learning rate", o.LearningRate)
	c.notNegative("weight decay", o.WeightDecay)
	c.fraction("averaging ratio", o.AveragingRatio)
	c.positive("epsilon", o.Epsilon)
	return checked(c, o)
}

// SlotSize is 2*dim.
func (Adadelta) SlotSize(dim int) int { return 2 * dim }

// InitSlots sets zeros.
func (Adadelta) InitSlots(slots []float32) { clear(slots) }

// Update is the formula above, in float64.
func (o Adadelta) Update(w, slots, g []float32, at Step) {
	lengths("adadelta", w, slots, g, 2*len(w))
	a, u := slots[:len(w)], slots[len(w):]
	rate, wd := float64(at.rate(o.LearningRate)), float64(o.WeightDecay)
	r, e := float64(o.AveragingRatio), float64(o.Epsilon)
	for i := range w {
		x := float64(w[i])
		d := float64(g[i]) + wd*x
		accum := r*float64(a[i]) + (1-r)*d*d
		d *= math.Sqrt(float64(u[i])+e) / math.Sqrt(accum+e)
		a[i], w[i] = float32(accum), float32(x-rate*d)
		u[i] = float32(r*float64(u[i]) + (1-r)*d*d)
	}
}

// Dumps is accum, accum_update.
func (Adadelta) Dumps(dim int) []Dump { return planes("adadelta", dim, "accum", "accum_update") }
