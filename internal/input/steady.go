package input

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/kernels/layout"
)

// steady reads messages that are laid out like the one before, each declared field there once and with one number,
// straight into the batch: nothing is noted of them. Where a message is not so, it has done nothing, and the whole
// reader takes it, which finds the same and knows every refusal.
type steady struct {
	targets []target // by declared field
	wanted  int      // fields that have one
	beside  int      // task whose label stands beside the features, in Monolith's Example; -1: none

	settled bool // the order of the last message has not changed since it was looked at
	entries int  // that it had
	covers  bool // it was of the wanted fields, each once
	seen    []bool
	credit  int // of a reader that is not tried once it has none
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
	if f := d.options.Format; f != Example && f != MonolithExample || !d.direct || len(d.rules) > 0 || len(d.floats) > 0 || d.time >= 0 {
		return
	}
	s := &steady{targets: make([]target, len(d.names)), beside: -1, seen: make([]bool, len(d.names)), credit: steadyCredit}
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
	d.steady = s
}

// besideLabel says whether a declared field is the first label beside the features of Monolith's Example.
func (d *Decoder) besideLabel(at int) bool {
	if d.options.Format != MonolithExample {
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
	if s == nil || s.credit < steadyMiss || !s.covered(d.before()) {
		return false
	}
	if d.straightInto(b, message) {
		s.credit = min(s.credit+1, steadyCredit)
		return true
	}
	s.credit -= steadyMiss
	return false
}

func (d *Decoder) straightInto(b *runtime.Batch, message []byte) bool {
	d.ids = slices.Grow(kept(d.ids, maxValues), len(d.features))[:len(d.features)] // each is set below, but of crossed features
	if d.options.Format == Example {
		num, typ, content, n := field(message)
		if num != exampleFeatures || typ != protowire.BytesType || n != len(message) {
			return false
		}
		message = content
	}
	for pos := range d.before() {
		at, list, packed, n := d.usual(pos, message)
		if n == 0 || !d.straight(at, list, packed) {
			return false
		}
		message = message[n:]
	}
	if !d.behind(message) {
		return false
	}
	for i, t := range d.tasks {
		if d.sample.Weights[i] = 1; t.label < 0 {
			d.sample.Labels[i] = d.unlabelled()
		}
	}
	return b.AddSingle(d.ids, nil, d.sample.Labels, d.sample.Weights) == nil
}

// behind reads what stands behind the features: a label, if one is wanted there, and of a LineId nothing.
func (d *Decoder) behind(rest []byte) bool {
	wants := d.steady.beside >= 0
	if d.options.Format == Example {
		return len(rest) == 0
	}
	for len(rest) > 0 {
		num, typ, content, n := field(rest)
		switch {
		case n < 0 || typ != protowire.BytesType:
			return false
		case num == mExampleLine:
		case num == mExampleLabel && wants && len(content) == 4:
			if wants = false; !d.labelIs(d.steady.beside, float64(math.Float32frombits(binary.LittleEndian.Uint32(content)))) {
				return false
			}
		default:
			return false
		}
		rest = rest[n:]
	}
	return !wants
}

// labelIs notes what a task learns; not what would be refused.
func (d *Decoder) labelIs(task int, v float64) bool {
	label, err := d.labelOf(task, v)
	d.sample.Labels[task] = label
	return err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
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

// straight takes the one number of a field's list.
func (d *Decoder) straight(at int, list byte, packed []byte) bool {
	var bits uint64
	var k kind
	switch monolith := d.options.Format == MonolithExample; {
	case monolith && len(packed) == 8 && list == monolithV2:
		bits, k = binary.LittleEndian.Uint64(packed), fid
	case monolith && len(packed) == 8 && list == monolithV1:
		bits, k = layout.V2FromV1(binary.LittleEndian.Uint64(packed)), fid
	case monolith:
		return false
	case list == featureInt64s:
		n, ok := varint(packed)
		if !ok {
			return false
		}
		bits, k = n, integer
	case list == featureFloats && len(packed) == 4:
		bits, k = uint64(binary.LittleEndian.Uint32(packed)), float
	default:
		return false
	}
	to := d.steady.targets[at]
	switch {
	case to.feature >= 0:
		c := &d.features[to.feature]
		id, ok := c.take(k, int64(bits))
		d.ids[to.feature] = modelspec.FID(c.slot, id)
		return ok && k != float
	case k == float:
		return d.labelIs(to.task, float64(math.Float32frombits(uint32(bits))))
	}
	return k == integer && d.labelIs(to.task, float64(int64(bits)))
}
