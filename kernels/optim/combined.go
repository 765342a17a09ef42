package optim

import "fmt"

// Segment is a part of a vector with an optimizer of its own.
type Segment struct {
	Dim       int
	Optimizer Optimizer
}

// Combined updates each segment of a vector by that segment's optimizer. Its slots are
// theirs, one behind the other.
type Combined struct {
	segments []Segment
	dim      int
	slots    []int // per segment
	size     int
}

// NewCombined refuses no segments, and segments whose dim their optimizer does not take.
func NewCombined(segments ...Segment) (*Combined, error) {
	if len(segments) == 0 {
		return nil, fmt.Errorf("optim: a vector of no segments: give one or more")
	}
	o := &Combined{segments: append([]Segment(nil), segments...)}
	for i, s := range segments {
		if s.Optimizer == nil {
			return nil, fmt.Errorf("optim: segment %d has no optimizer: give it one", i+1)
		}
		if err := CheckDim(s.Optimizer, s.Dim); err != nil {
			return nil, fmt.Errorf("segment %d: %w", i+1, err)
		}
		n := s.Optimizer.SlotSize(s.Dim)
		o.dim, o.slots, o.size = o.dim+s.Dim, append(o.slots, n), o.size+n
	}
	return o, nil
}

// CheckDim takes the sum of the segments' dims alone.
func (o *Combined) CheckDim(dim int) error {
	if dim != o.dim {
		return fmt.Errorf("optim: a vector of %d weights where the segments add up to %d: give as many", dim, o.dim)
	}
	return nil
}

// SlotSize is the sum over the segments, or -1 for another dim than theirs.
func (o *Combined) SlotSize(dim int) int {
	if dim != o.dim {
		return -1
	}
	return o.size
}

// InitSlots has each segment's optimizer set its own.
func (o *Combined) InitSlots(slots []float32) {
	for i, s := range o.segments {
		s.Optimizer.InitSlots(slots[:o.slots[i]])
		slots = slots[o.slots[i]:]
	}
}

// Update updates one segment after the other. A rate in at counts for all of them.
func (o *Combined) Update(w, slots, g []float32, at Step) {
	lengths("combined", w, slots, g, o.SlotSize(len(w)))
	for i, s := range o.segments {
		s.Optimizer.Update(w[:s.Dim:s.Dim], slots[:o.slots[i]:o.slots[i]], g[:s.Dim:s.Dim], at)
		w, slots, g = w[s.Dim:], slots[o.slots[i]:], g[s.Dim:]
	}
}

// Dumps are those of the segments in order; none where dim is not theirs.
func (o *Combined) Dumps(dim int) []Dump {
	if dim != o.dim {
		return nil
	}
	var dumps []Dump
	by := 0
	for i, s := range o.segments {
		dumps = append(dumps, shifted(s.Optimizer, s.Dim, by)...)
		by += o.slots[i]
	}
	return dumps
}
