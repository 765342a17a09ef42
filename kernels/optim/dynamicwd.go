package optim

import "math"

// DynamicWdAdagrad is Adagrad whose weight decay depends on how long the vector has not
// been updated. The original declares it and does not implement it; here, with s the
// steps since the last update (since step 0 before the first one),
//
//	f   = 1 - exp(-s / Temperature)       rare vectors decay most
//	f   = exp(-s / Temperature)           Flip: frequent vectors decay most
//	f   = 1                               without Dynamic
//	wd  = WeightDecay * f
//	g'  = g + wd*w                        g' = g with Decoupled
//	n  += g'^2
//	w  -= LearningRate / sqrt(n) * g'
//	w  -= LearningRate * wd * w           only with Decoupled, of w before the update
//
// so WeightDecay is the most there is. Its slots are n, one per weight, and the last
// update's step.
type DynamicWdAdagrad struct {
	LearningRate       float32 // the original's default: 0.001
	InitialAccumulator float32 // the original's default: 0.1
	WeightDecay        float32
	Temperature        float32 // in steps; the original's default: 1
	Dynamic            bool
	Decoupled          bool
	Flip               bool
}

// NewDynamicWdAdagrad returns o, or refuses a rate or temperature that is not positive
// and values that are negative or not finite.
func NewDynamicWdAdagrad(o DynamicWdAdagrad) (DynamicWdAdagrad, error) {
	c := checks{kind: "dynamic_wd_adagrad"}
	c.positive("learning rate", o.LearningRate)
	c.notNegative("initial accumulator value", o.InitialAccumulator)
	c.notNegative("weight decay", o.WeightDecay)
	c.positive("temperature", o.Temperature)
	return checked(c, o)
}

// SlotSize is dim and two for the step.
func (DynamicWdAdagrad) SlotSize(dim int) int { return dim + intSlots }

// InitSlots sets every n to InitialAccumulator and the step to 0.
func (o DynamicWdAdagrad) InitSlots(slots []float32) {
	n := len(slots) - intSlots
	fill(slots[:n], o.InitialAccumulator)
	PutInt(slots[n:], 0)
}

// Update is the formula above, in float64.
func (o DynamicWdAdagrad) Update(w, slots, g []float32, at Step) {
	lengths("dynamic_wd_adagrad", w, slots, g, len(w)+intSlots)
	n, last := slots[:len(w)], slots[len(w):]
	rate, wd := float64(at.rate(o.LearningRate)), float64(o.WeightDecay)
	if o.Dynamic {
		f := math.Exp(-float64(max(at.GlobalStep-Int(last), 0)) / float64(o.Temperature))
		if !o.Flip {
			f = 1 - f
		}
		wd *= f
	}
	for i, x := range w {
		d, x := float64(g[i]), float64(x)
		move := 0.
		if o.Decoupled {
			move = rate * wd * x
		} else {
			d += wd * x
		}
		a := float64(n[i]) + d*d
		if n[i] = float32(a); n[i] > 0 {
			move += rate / math.Sqrt(a) * d
		}
		w[i] = float32(x - move)
	}
	PutInt(last, max(at.GlobalStep, Int(last)))
}

// Dumps is norm and last_update_step.
func (DynamicWdAdagrad) Dumps(dim int) []Dump {
	d := planes("dynamic_wd_adagrad", dim, "norm")
	d[0].Planes = append(d[0].Planes, Plane{Name: "last_update_step", From: dim, To: dim + intSlots, Integer: true})
	return d
}
