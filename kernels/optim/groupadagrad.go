package optim

import "math"

// GroupAdagrad is adagrad with one accumulator per vector and group lasso, with
// g' = g + WeightDecay*w:
//
//	S += max(g'^2)
//	e  = LearningRate / (Beta + sqrt(S))
//	y  = g' - w/e
//	w  = 0                             where |y| < L2, or y is 0
//	w  = -e * (|y| - L2) / |y| * y
//
// |y| being the length of the vector y. Its slot is S, from InitialAccumulator. Nothing
// changes where e would not be a positive number: at a rate too small to divide by, such
// as ZeroRate, and while Beta and S are both 0.
type GroupAdagrad struct {
	LearningRate       float32 // the original's default: 0.01
	Beta               float32
	InitialAccumulator float32 // the original's default: 0.1
	L2                 float32
	WeightDecay        float32
}

// NewGroupAdagrad returns o, or refuses a rate that is not positive and values that are
// negative or not finite.
func NewGroupAdagrad(o GroupAdagrad) (GroupAdagrad, error) {
	c := checks{kind: "group_adagrad"}
	c.leader(o.LearningRate, o.Beta, o.InitialAccumulator, 0, o.L2)
	c.notNegative("weight decay", o.WeightDecay)
	return checked(c, o)
}

// SlotSize is 1.
func (GroupAdagrad) SlotSize(int) int { return 1 }

// InitSlots sets S.
func (o GroupAdagrad) InitSlots(slots []float32) { fill(slots, o.InitialAccumulator) }

// Update is the formula above, in float64.
func (o GroupAdagrad) Update(w, slots, g []float32, at Step) {
	lengths("group_adagrad", w, slots, g, 1)
	rate := at.rate(o.LearningRate)
	if tooSlow(rate) {
		return
	}
	most := 0.
	for i, x := range w {
		d := float64(g[i]) + float64(o.WeightDecay)*float64(x)
		most = max(most, d*d)
	}
	sum := float64(slots[0]) + most
	slots[0] = float32(sum)
	e := float64(rate) / (float64(o.Beta) + math.Sqrt(sum))
	if math.IsInf(e, 0) {
		return
	}
	y := func(i int) float64 {
		return float64(g[i]) + float64(o.WeightDecay)*float64(w[i]) - float64(w[i])/e
	}
	length := 0.
	for i := range w {
		length += y(i) * y(i)
	}
	length = math.Sqrt(length)
	if length == 0 || length < float64(o.L2) {
		clear(w)
		return
	}
	scale := -e * (length - float64(o.L2)) / length
	for i := range w {
		w[i] = float32(scale * y(i))
	}
}

// Dumps is grad_square_sum.
func (GroupAdagrad) Dumps(int) []Dump { return planes("group_adagrad", 1, "grad_square_sum") }
