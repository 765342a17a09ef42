package input

import (
	"slices"

	"github.com/monolith-go/monolith/internal/input/pbfield"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/kernels/layout"
)

// steady reads messages that are laid out like the one before, each declared field there once and with one number,
// straight into the batch: nothing is noted of them. Where a message is not so, it has done nothing, and the whole
// reader takes it, which finds the same and knows every refusal.
type steady struct {
	format  Format         // without its framing
	targets []target       // by declared field
	heads   []pbfield.Head // likewise
	wanted  int            // fields that have one
	beside  int            // task whose label stands beside the features, in Monolith's formats; -1: none

	settled bool // the order of the last message has not changed since it was looked at
	entries int  // that it had
	covers  bool // it was of the wanted fields, each once
	seen    []bool
	credit  int // of a reader that is not tried once it has none

	slots   []int32  // of an Instance, by number: 1 + the feature whose ids are of it
	times   []uint64 // by feature: of the message that had an id of it
	message uint64   // that is read
	columns []int    // declared fields of an ExampleBatch that are wanted, with the label's
	rows    bool     // the ExampleBatch that is read has just these
}

// Of messages that are tried, two in three must be steady: one that is not costs about as much as one that is saves.
const (
	steadyCredit = 1 << 10
	steadyMiss   = 2
)

// target is what a declared field is for.
type target struct {
	feature int // -1: for none
	task    int // whose label it is; -1: of none
}

// readySteady finds out whether messages of this format and model may be read so.
func (d *Decoder) readySteady() {
	format := d.options.Format.message()
	if format == JSON || !d.direct || len(d.rules) > 0 || len(d.floats) > 0 || d.time >= 0 {
		return
	}
	s := &steady{format: format, targets: make([]target, len(d.names)), heads: make([]pbfield.Head, len(d.names)), beside: -1, seen: make([]bool, len(d.names)), credit: steadyCredit}
	for at := range s.targets {
		s.targets[at] = target{-1, -1}
	}
	free := func(at int) bool { return s.targets[at] == target{-1, -1} }
	for f := range d.features {
		at := d.features[f].at
		if at < 0 {
			continue
		}
		if !free(at) {
			return
		}
		s.targets[at].feature = f
		s.wanted++
	}
	for i, t := range d.tasks {
		switch {
		case t.weight >= 0 || t.mask >= 0:
			return
		case t.label < 0:
		case d.besideLabel(t.label) && s.beside < 0:
			s.beside = i
		case d.besideLabel(t.label) || !free(t.label):
			return
		default:
			s.targets[t.label].task = i
			s.wanted++
		}
	}
	if len(d.parts) > 1 || len(d.parts) == 1 && (s.beside < 0 || d.parts[0].at != d.tasks[s.beside].label) {
		return
	}
	switch format {
	case Instance:
		if !s.bySlot(d.slots) {
			return
		}
	case ExampleBatch:
		for at := range s.targets {
			if !free(at) || at == d.labels && s.beside >= 0 {
				s.columns = append(s.columns, at)
			}
		}
	}
	d.steady = s
}

// bySlot finds the features of an Instance's slots, and says whether each wanted field is one slot's.
func (s *steady) bySlot(slots []slot) bool {
	s.slots = make([]int32, layout.MaxSlotV1+1)
	for _, x := range slots {
		if len(x.at) != 1 || s.targets[x.at[0]].feature < 0 {
			return false
		}
		s.slots[x.number] = int32(1 + s.targets[x.at[0]].feature)
	}
	return len(slots) == s.wanted
}

// besideLabel says whether a declared field is the first label beside the features, of Monolith's formats.
func (d *Decoder) besideLabel(at int) bool {
	if d.options.Format.message() == Example {
		return false
	}
	for _, p := range d.parts {
		if p.at == at {
			return p.field.num == 0 && p.nth == 0
		}
	}
	return at == d.labels
}

// steadily adds the sample of a message. Where it has not, all is as it was.
func (d *Decoder) steadily(b *runtime.Batch, message []byte) bool {
	s := d.steady
	if s == nil || s.credit < steadyMiss {
		return false
	}
	var straight bool
	d.makeRoom()
	switch s.format {
	case Example:
		straight = s.covered(d.before()) && d.straightExample(message)
	case MonolithExample:
		straight = s.covered(d.before()) && d.straightMonolith(message)
	case Instance:
		straight = d.straightInstance(message)
	}
	return s.tried(straight && d.straightInto(b))
}

// steadyRow adds one sample of the ExampleBatch that is read. Where it has not, all is as it was.
func (d *Decoder) steadyRow(b *runtime.Batch, i int) bool {
	s := d.steady
	if s == nil || s.credit < steadyMiss || !s.rows {
		return false
	}
	d.makeRoom()
	return s.tried(d.straightRow(i) && d.straightInto(b))
}

// makeRoom has an id of each feature, which is yet to be set.
func (d *Decoder) makeRoom() {
	d.ids = slices.Grow(kept(d.ids, maxValues), len(d.features))[:len(d.features)]
}

// tried notes whether a message was steady, and returns it.
func (s *steady) tried(straight bool) bool {
	if straight {
		s.credit = min(s.credit+1, steadyCredit)
	} else {
		s.credit -= steadyMiss
	}
	return straight
}

// before are the declared fields of the last message that the whole reader took, by their position.
func (d *Decoder) before() []int { return d.order[:min(d.entries, len(d.order))] }

// covered says whether that message held each wanted field once, and nothing else.
func (s *steady) covered(order []int) bool {
	if s.settled && s.entries == len(order) {
		return s.covers
	}
	clear(s.seen)
	s.settled, s.entries, s.covers = true, len(order), len(order) == s.wanted
	for _, at := range order {
		if s.covers = s.covers && at >= 0 && !s.seen[at] && s.targets[at] != (target{-1, -1}); !s.covers {
			break
		}
		s.seen[at] = true
	}
	return s.covers
}

// only looks whether the columns of an ExampleBatch are those that are wanted, with an element for each sample.
func (s *steady) only(all []cells) {
	there := 0
	for _, c := range all {
		if c.there {
			there++
		}
	}
	s.rows = there == len(s.columns)
	for _, at := range s.columns {
		s.rows = s.rows && all[at].there && all[at].n > 0
	}
}
