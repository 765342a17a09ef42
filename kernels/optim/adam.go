package optim

import (
	"math"

	"github.com/monolith-go/monolith/kernels/vec"
)

// Adam is, per weight, with g' = g + WeightDecay*w:
//
//	rate = LearningRate * sqrt(1 - p2) / (1 - p1)
//	m   += (g' - m) * (1 - Beta1)
//	v   += (g'^2 - v) * (1 - Beta2)
//	w   -= m * rate / (sqrt(v) + Epsilon)
//	w   -= (g'*(1-Beta1) + Beta1*m) * rate / (sqrt(v) + Epsilon)     with Nesterov
//
// and afterwards p1 *= Beta1, p2 *= Beta2: a vector's bias is corrected by the number
// of its own updates. Its slots are the m, the v, p1 and p2; m and v start at 0, p1 at
// Beta1 and p2 at Beta2.
type Adam struct {
	LearningRate float32 // the original's default: 0.01
	Beta1        float32 // the original's default: 0.9
	Beta2        float32 // the original's default: 0.99
	Epsilon      float32 // the original's default: 0.01
	WeightDecay  float32
	Nesterov     bool
}

// NewAdam returns o, or refuses a rate or epsilon that is not positive, betas outside
// of 0 to 1, a negative decay, and what is not finite.
func NewAdam(o Adam) (Adam, error) {
	c := checks{kind: "adam"}
	c.moments(o.LearningRate, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay)
	return checked(c, o)
}

func (c *checks) moments(rate, beta1, beta2, epsilon, decay float32) {
	c.positive("learning rate", rate)
	c.fraction("beta1", beta1)
	c.fraction("beta2", beta2)
	c.positive("epsilon", epsilon)
	c.notNegative("weight decay", decay)
}

// SlotSize is 2*dim+2.
func (Adam) SlotSize(dim int) int { return 2*dim + 2 }

// InitSlots sets zeros and the two powers.
func (o Adam) InitSlots(slots []float32) { initMoments(slots, o.Beta1, o.Beta2) }

func initMoments(slots []float32, beta1, beta2 float32) {
	clear(slots)
	slots[len(slots)-2], slots[len(slots)-1] = beta1, beta2
}

// unbiased is the step's rate by the powers of the betas, which it moves on.
func unbiased(rate float32, powers []float32, beta1, beta2 float32) float32 {
	p1, p2 := float64(powers[0]), float64(powers[1])
	powers[0], powers[1] = powers[0]*beta1, powers[1]*beta2
	return float32(float64(rate) * math.Sqrt(1-p2) / (1 - p1))
}

// Update is the formula above, in float32; rate is computed in float64.
func (o Adam) Update(w, slots, g []float32, at Step) {
	dim := len(w)
	lengths("adam", w, slots, g, 2*dim+2)
	m, v := slots[:dim], slots[dim:2*dim]
	rate := unbiased(at.rate(o.LearningRate), slots[2*dim:], o.Beta1, o.Beta2)
	if !o.Nesterov {
		vec.Adam(w, m, v, g, rate, 1-o.Beta1, 1-o.Beta2, o.Epsilon, o.WeightDecay)
		return
	}
	for i, x := range w {
		d, a := moments(float64(g[i])+float64(o.WeightDecay)*float64(x), &m[i], &v[i], o.Beta1, o.Beta2)
		a = d*(1-float64(o.Beta1)) + float64(o.Beta1)*a
		w[i] = float32(float64(x) - a*float64(rate)/(math.Sqrt(float64(v[i]))+float64(o.Epsilon)))
	}
}

// moments moves m and v on and returns d, and m before it was rounded.
func moments(d float64, m, v *float32, beta1, beta2 float32) (float64, float64) {
	a := float64(*m) + (d-float64(*m))*(1-float64(beta1))
	*m = float32(a)
	*v = float32(float64(*v) + (d*d-float64(*v))*(1-float64(beta2)))
	return d, a
}

// Dumps is m, v, beta1_power, beta2_power.
func (Adam) Dumps(dim int) []Dump { return withPowers(planes("adam", dim, "m", "v"), 2*dim) }

func withPowers(d []Dump, at int) []Dump {
	d[0].Planes = append(d[0].Planes,
		Plane{Name: "beta1_power", From: at, To: at + 1}, Plane{Name: "beta2_power", From: at + 1, To: at + 2})
	return d
}

// AMSGrad is Adam whose step divides by the greatest v so far:
//
//	vhat = max(vhat, v)
//
// takes the place of v in the last line. Its slots are the m, the v, the vhat, p1, p2.
type AMSGrad struct {
	LearningRate float32 // the original's default: 0.01
	Beta1        float32 // the original's default: 0.9
	Beta2        float32 // the original's default: 0.99
	Epsilon      float32 // the original's default: 0.01
	WeightDecay  float32
	Nesterov     bool
}

// NewAMSGrad returns o, or refuses what NewAdam refuses.
func NewAMSGrad(o AMSGrad) (AMSGrad, error) {
	c := checks{kind: "amsgrad"}
	c.moments(o.LearningRate, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay)
	return checked(c, o)
}

// SlotSize is 3*dim+2.
func (AMSGrad) SlotSize(dim int) int { return 3*dim + 2 }

// InitSlots sets zeros and the two powers.
func (o AMSGrad) InitSlots(slots []float32) { initMoments(slots, o.Beta1, o.Beta2) }

// Update is the formula above, in float64.
func (o AMSGrad) Update(w, slots, g []float32, at Step) {
	dim := len(w)
	lengths("amsgrad", w, slots, g, 3*dim+2)
	m, v, vhat := slots[:dim], slots[dim:2*dim], slots[2*dim:3*dim]
	rate := float64(unbiased(at.rate(o.LearningRate), slots[3*dim:], o.Beta1, o.Beta2))
	for i, x := range w {
		d, a := moments(float64(g[i])+float64(o.WeightDecay)*float64(x), &m[i], &v[i], o.Beta1, o.Beta2)
		vhat[i] = max(vhat[i], v[i])
		if o.Nesterov {
			a = d*(1-float64(o.Beta1)) + float64(o.Beta1)*a
		}
		w[i] = float32(float64(x) - a*rate/(math.Sqrt(float64(vhat[i]))+float64(o.Epsilon)))
	}
}

// Dumps is m, v, vhat, beta1_power, beta2_power.
func (AMSGrad) Dumps(dim int) []Dump {
	return withPowers(planes("amsgrad", dim, "m", "v", "vhat"), 3*dim)
}
