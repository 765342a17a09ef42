package hostcall

import (
	"fmt"
	"slices"
)

// globalStep is the name of every call's first tensor.
const globalStep = "global_step"

// Tensor is a vector by its name. One of its slices has it.
type Tensor struct {
	Name   string
	Ints   []int64
	Floats []float32
}

// kind is a tensor's type.
type kind uint8

const (
	ints kind = iota
	floats
)

func (t *Tensor) kind() kind {
	if t.Floats != nil {
		return floats
	}
	return ints
}

func (t *Tensor) size() int { return len(t.Ints) + len(t.Floats) }

// Call is what the computation of a step hands to the host.
type Call struct{ tensors []Tensor }

// NewCall begins the call of a step.
func NewCall(step int64) *Call {
	return &Call{[]Tensor{{Name: globalStep, Ints: []int64{step}}}}
}

// Record adds a tensor, which must have a name of its own.
func (c *Call) Record(t Tensor) error {
	if slices.ContainsFunc(c.tensors, func(o Tensor) bool { return o.Name == t.Name }) {
		return fmt.Errorf("the host call has two tensors called %q: rename one", t.Name)
	}
	c.tensors = append(c.tensors, t)
	return nil
}

// Packed is a call as it is handed over: one tensor for each type, in the order in which types came first.
// A device transfers each of these at once, whatever the step has recorded.
type Packed struct{ groups []group }

// group is the tensors of one type, one after another.
type group struct {
	kind   kind
	names  []string
	sizes  []int
	ints   []int64
	floats []float32
}

// Compress copies the tensors together, so that their memory may be used again.
func (c *Call) Compress() Packed {
	var p Packed
	for i := range c.tensors {
		t := &c.tensors[i]
		at := slices.IndexFunc(p.groups, func(g group) bool { return g.kind == t.kind() })
		if at < 0 {
			at, p.groups = len(p.groups), append(p.groups, group{kind: t.kind()})
		}
		g := &p.groups[at]
		g.names, g.sizes = append(g.names, t.Name), append(g.sizes, t.size())
		g.ints, g.floats = append(g.ints, t.Ints...), append(g.floats, t.Floats...)
	}
	return p
}

// Decompress is the step, and the tensors by type and within one in the order in which they were recorded.
func (p *Packed) Decompress() (step int64, tensors []Tensor, err error) {
	for _, g := range p.groups {
		begin := 0
		for i, name := range g.names {
			end := begin + g.sizes[i]
			t := Tensor{Name: name}
			switch g.kind {
			case ints:
				t.Ints = g.ints[begin:end:end]
			case floats:
				t.Floats = g.floats[begin:end:end]
			}
			begin, tensors = end, append(tensors, t)
		}
	}
	if len(tensors) == 0 || tensors[0].Name != globalStep || len(tensors[0].Ints) != 1 {
		first := "nothing"
		if len(tensors) > 0 {
			first = tensors[0].Name
		}
		return 0, nil, fmt.Errorf("the host call begins with %s, not with a %s", first, globalStep)
	}
	return tensors[0].Ints[0], tensors, nil
}
