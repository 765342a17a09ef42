// Package optim turns a gradient into a change of weights.
//
// An Optimizer is a value without state of its own: what it remembers of a vector lies
// in that vector's slots, which the caller keeps beside the weights. The same weights,
// slots, gradient and step always give the same bits on one backend of kernels/vec, and
// SGD, Adagrad and Adam on all of them.
//
// A gradient that is NaN or infinite makes weights and slots NaN or infinite, but for
// those of Adagrad's kin, which stay once their accumulator is NaN: refuse it before, as
// kernels/table does. Wrong lengths panic.
package optim

import "fmt"

// Optimizer updates one vector of weights, or one dense variable, in place.
type Optimizer interface {
	// SlotSize is the number of float32 kept for a vector of dim weights, or -1 where
	// CheckDim refuses them.
	SlotSize(dim int) int
	// InitSlots sets the slots of a vector that has never been updated.
	InitSlots(slots []float32)
	// Update applies gradient g to w. len(g) == len(w) and len(slots) ==
	// SlotSize(len(w)); other lengths panic. g is not changed.
	Update(w, slots, g []float32, at Step)
}

// Step says when an update happens.
type Step struct {
	// LearningRate replaces the optimizer's own; 0 leaves it. ZeroRate stands for 0.
	LearningRate float32
	// GlobalStep counts the updates of the model so far, from 0.
	GlobalStep int64
}

// ZeroRate is the learning rate that moves no weight, such as that of the first step of
// a warm-up. Optimizers that would divide by it leave the slots alone, too.
const ZeroRate = 0x1p-149

func (s Step) rate(own float32) float32 {
	if s.LearningRate != 0 {
		return s.LearningRate
	}
	return own
}

// tooSlow says that a rate cannot be divided by.
func tooSlow(rate float32) bool { return rate < 0x1p-100 }

// Plane is a part of the slots that checkpoints know by name: slots[From:To].
type Plane struct {
	Name     string // the field of the original's dump message
	From, To int
	// Integer says that the plane holds one int64, for Int and PutInt.
	Integer bool
}

// Dump is what a checkpoint writes of one optimizer: one message.
type Dump struct {
	Kind   string // the field of the original's SingleOptimizerDump
	Planes []Plane
}

// Dumper is implemented by every Optimizer of this package.
type Dumper interface {
	Optimizer
	// Dumps lists the messages for a vector of dim weights in order: none where the
	// original has none, several for a Combined. Slots outside of all planes are lost
	// in the original's format and start anew.
	Dumps(dim int) []Dump
}

// Sized is an Optimizer that does not take vectors of every length.
type Sized interface {
	// CheckDim explains why it does not take dim weights, or returns nil.
	CheckDim(dim int) error
}

// CheckDim asks o, if it is Sized, and refuses dims below 1.
func CheckDim(o Optimizer, dim int) error {
	if dim < 1 {
		return fmt.Errorf("optim: a vector of %d weights: give 1 or more", dim)
	}
	if s, ok := o.(Sized); ok {
		return s.CheckDim(dim)
	}
	return nil
}

// intSlots is how many float32 an int64 from 0 to 2^48-1 takes: they hold 24 bits each,
// exactly.
const intSlots = 2

// PutInt writes n into a plane that says Integer. Numbers below 0 count as 0, those
// from 2^48 on as 2^48-1.
func PutInt(plane []float32, n int64) {
	n = min(max(n, 0), 1<<48-1)
	plane[0], plane[1] = float32(n&0xffffff), float32(n>>24)
}

// Int reads a plane that says Integer.
func Int(plane []float32) int64 { return int64(plane[1])<<24 + int64(plane[0]) }

func planes(kind string, dim int, names ...string) []Dump {
	d := Dump{Kind: kind}
	for i, name := range names {
		d.Planes = append(d.Planes, Plane{Name: name, From: i * dim, To: (i + 1) * dim})
	}
	return []Dump{d}
}

// lengths panics with a sentence where slots or gradients do not fit the weights.
func lengths(kind string, w, slots, g []float32, want int) {
	if len(slots) != want || len(g) != len(w) {
		panic(fmt.Sprintf("optim: %s on %d weights got %d slots and %d gradients, it needs %d and %d", kind, len(w), len(slots), len(g), want, len(w)))
	}
}

// checks collects the first complaint about an optimizer's numbers.
type checks struct {
	kind string
	err  error
}

func (c *checks) rule(ok bool, what string, x float32, give string) {
	if c.err == nil && (!ok || !finite(x)) {
		c.err = fmt.Errorf("optim: %s %s is %g: give %s", c.kind, what, x, give)
	}
}

func (c *checks) positive(what string, x float32) { c.rule(x > 0, what, x, "a positive number") }

func (c *checks) notNegative(what string, x float32) {
	c.rule(x >= 0, what, x, "zero or a positive number")
}

// fraction is a number from 0 to below 1.
func (c *checks) fraction(what string, x float32) {
	c.rule(x >= 0 && x < 1, what, x, "a number from 0 to below 1")
}

// checked returns o, or nothing and the complaint.
func checked[O any](c checks, o O) (O, error) {
	if c.err != nil {
		var none O
		return none, c.err
	}
	return o, nil
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

func finite(x float32) bool { return x-x == 0 }
