package optim

import "math"

// FTRL follows the regularised leader, per weight:
//
//	n' = n + g^2
//	z += g - (sqrt(n') - sqrt(n)) / LearningRate * w
//	w  = 0                                                     where |z| <= L1
//	w  = LearningRate * (sign(z)*L1 - z) / (sqrt(n') + Beta + L2*LearningRate)
//
// Its slots are the z and then the n; z starts at 0, n at InitialAccumulator. A rate too
// small to divide by, such as ZeroRate, changes nothing.
//
// Compat has the original's sign, which is 1 for a negative z and 0 for a positive one:
// L1 then never shrinks the weights of positive z and enlarges those of negative z.
type FTRL struct {
	LearningRate       float32 // the original's default: 0.01
	Beta               float32
	InitialAccumulator float32 // the original's default: 0.1
	L1, L2             float32
	Compat             bool
}

// NewFTRL returns o, or refuses a rate that is not positive and values that are
// negative or not finite.
func NewFTRL(o FTRL) (FTRL, error) {
	c := checks{kind: "ftrl"}
	c.leader(o.LearningRate, o.Beta, o.InitialAccumulator, o.L1, o.L2)
	return checked(c, o)
}

func (c *checks) leader(rate, beta, accumulator, l1, l2 float32) {
	c.positive("learning rate", rate)
	c.rule(!tooSlow(rate), "learning rate", rate, "a greater one, it is divided by")
	c.notNegative("beta", beta)
	c.notNegative("initial accumulator value", accumulator)
	c.notNegative("l1 regularization strength", l1)
	c.notNegative("l2 regularization strength", l2)
}

// SlotSize is 2*dim.
func (FTRL) SlotSize(dim int) int { return 2 * dim }

// InitSlots sets z to 0 and n to InitialAccumulator.
func (o FTRL) InitSlots(slots []float32) { initLeader(slots, o.InitialAccumulator) }

func initLeader(slots []float32, accumulator float32) {
	dim := len(slots) / 2
	clear(slots[:dim])
	fill(slots[dim:], accumulator)
}

// follow moves z and n on and returns z and the root of n. float32 has no room for a
// quotient beyond its range, which a tiny rate may give: z then stays as large as it gets.
func follow(x, g float32, z, n *float32, rate float64) (leader, root float64) {
	d := float64(g)
	sum := float64(*n) + d*d
	root = math.Sqrt(sum)
	leader = float64(*z) + d - (root-math.Sqrt(float64(*n)))/rate*float64(x)
	*z, *n = float32(min(max(leader, -math.MaxFloat32), math.MaxFloat32)), float32(sum)
	return leader, root
}

// Update is the formula above, in float64.
func (o FTRL) Update(w, slots, g []float32, at Step) {
	lengths("ftrl", w, slots, g, 2*len(w))
	if tooSlow(at.rate(o.LearningRate)) {
		return
	}
	z, n := slots[:len(w)], slots[len(w):]
	rate, l1 := float64(at.rate(o.LearningRate)), float64(o.L1)
	for i, x := range w {
		leader, root := follow(x, g[i], &z[i], &n[i], rate)
		below := root + float64(o.Beta) + float64(o.L2)*rate
		switch {
		case math.Abs(leader) <= l1 || below == 0:
			w[i] = 0
		case o.Compat && leader > 0:
			w[i] = float32(rate * -leader / below)
		case o.Compat:
			w[i] = float32(rate * (l1 - leader) / below)
		default:
			w[i] = float32(rate * (math.Copysign(l1, leader) - leader) / below)
		}
	}
}

// Dumps is zero, norm.
func (FTRL) Dumps(dim int) []Dump { return planes("ftrl", dim, "zero", "norm") }

// GroupFTRL is FTRL that also drops whole vectors. The original declares it and does not
// implement it; here, with n and z as of FTRL and s the z shrunk towards 0 by L1,
//
//	w = 0                                                 where |s| <= L2 * sqrt(dim)
//	w = -(1 - L2*sqrt(dim)/|s|) * s * LearningRate / (sqrt(n') + Beta)
//
// |s| being the length of the vector s: the rule of sparse group lasso. Its slots are
// the z and then the n; z starts at 0, n at InitialAccumulator.
type GroupFTRL struct {
	LearningRate       float32 // the original's default: 0.01
	Beta               float32 // the original's default: 1
	InitialAccumulator float32
	L1, L2             float32
}

// NewGroupFTRL returns o, or refuses a rate that is not positive and values that are
// negative or not finite.
func NewGroupFTRL(o GroupFTRL) (GroupFTRL, error) {
	c := checks{kind: "group_ftrl"}
	c.leader(o.LearningRate, o.Beta, o.InitialAccumulator, o.L1, o.L2)
	return checked(c, o)
}

// SlotSize is 2*dim.
func (GroupFTRL) SlotSize(dim int) int { return 2 * dim }

// InitSlots sets z to 0 and n to InitialAccumulator.
func (o GroupFTRL) InitSlots(slots []float32) { initLeader(slots, o.InitialAccumulator) }

// Update is the formula above, in float64. A rate too small to divide by changes nothing.
func (o GroupFTRL) Update(w, slots, g []float32, at Step) {
	lengths("group_ftrl", w, slots, g, 2*len(w))
	if tooSlow(at.rate(o.LearningRate)) {
		return
	}
	z, n := slots[:len(w)], slots[len(w):]
	rate := float64(at.rate(o.LearningRate))
	length := 0.
	for i, x := range w {
		follow(x, g[i], &z[i], &n[i], rate)
		s := shrink(float64(z[i]), float64(o.L1))
		length += s * s
	}
	length = math.Sqrt(length)
	keep := 1 - float64(o.L2)*math.Sqrt(float64(len(w)))/length
	for i := range w {
		s, below := shrink(float64(z[i]), float64(o.L1)), math.Sqrt(float64(n[i]))+float64(o.Beta)
		if s == 0 || keep <= 0 || below == 0 {
			w[i] = 0
			continue
		}
		w[i] = float32(-keep * s * rate / below)
	}
}

// shrink moves x towards 0 by l, and not past it.
func shrink(x, l float64) float64 {
	if math.Abs(x) <= l {
		return 0
	}
	return x - math.Copysign(l, x)
}

// Dumps is zero, norm.
func (GroupFTRL) Dumps(dim int) []Dump { return planes("group_ftrl", dim, "zero", "norm") }
