package optim

// Momentum is, per weight:
//
//	n' = Momentum*n - LearningRate*(g + WeightDecay*w)
//	w += n'
//	w += (1 + Momentum)*n' - Momentum*n       with Nesterov
//
// Its slots are the n, from 0.
type Momentum struct {
	LearningRate float32 // the original's default: 0.01
	WeightDecay  float32
	Momentum     float32 // the original's default: 0.9
	Nesterov     bool
}

// NewMomentum returns o, or refuses a rate that is not positive, a momentum outside of
// 0 to 1, a negative decay, and what is not finite.
func NewMomentum(o Momentum) (Momentum, error) {
	c := checks{kind: "momentum"}
	c.positive("learning rate", o.LearningRate)
	c.notNegative("weight decay", o.WeightDecay)
	c.fraction("momentum", o.Momentum)
	return checked(c, o)
}

// SlotSize is dim.
func (Momentum) SlotSize(dim int) int { return dim }

// InitSlots sets zeros.
func (Momentum) InitSlots(slots []float32) { clear(slots) }

// Update is the formula above, in float64.
func (o Momentum) Update(w, slots, g []float32, at Step) {
	lengths("momentum", w, slots, g, len(w))
	rate, mu, wd := float64(at.rate(o.LearningRate)), float64(o.Momentum), float64(o.WeightDecay)
	for i := range w {
		x, n := float64(w[i]), float64(slots[i])
		next := mu*n - rate*(float64(g[i])+wd*x)
		slots[i] = float32(next)
		if o.Nesterov {
			next += mu * (next - n)
		}
		w[i] = float32(x + next)
	}
}

// Dumps is n.
func (Momentum) Dumps(dim int) []Dump { return planes("momentum", dim, "n") }

// MovingAverage is w = Momentum*w + (1-Momentum)*g: weights that follow what comes as
// their gradient. It has neither slots nor a learning rate.
type MovingAverage struct {
	Momentum float32 // the original's default: 0.9
}

// NewMovingAverage refuses a momentum outside of 0 to 1.
func NewMovingAverage(momentum float32) (MovingAverage, error) {
	c := checks{kind: "moving_average"}
	c.fraction("momentum", momentum)
	return checked(c, MovingAverage{momentum})
}

// SlotSize is 0.
func (MovingAverage) SlotSize(int) int { return 0 }

// InitSlots has nothing to set.
func (MovingAverage) InitSlots([]float32) {}

// Update is the formula above, in float64. At ZeroRate, too: it has no rate.
func (o MovingAverage) Update(w, slots, g []float32, _ Step) {
	lengths("moving_average", w, slots, g, 0)
	mu := float64(o.Momentum)
	for i, x := range w {
		w[i] = float32(mu*float64(x) + (1-mu)*float64(g[i]))
	}
}

// Dumps is empty: the original writes no message.
func (MovingAverage) Dumps(int) []Dump { return nil }
