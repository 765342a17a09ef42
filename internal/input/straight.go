package input

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/input/pbfield"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/kernels/layout"
)

// What follows reads steady messages: false says that a message is not one.

func (d *Decoder) straightExample(message []byte) bool {
	num, typ, b, n := pbfield.Next(message)
	if num != exampleFeatures || typ != protowire.BytesType || n != len(message) {
		return false
	}
	for _, at := range d.before() {
		list, packed, n := d.steady.heads[at].Named(d.names[at], b)
		if n == 0 {
			return false
		}
		b = b[n:]
		switch {
		case list == featureInt64s:
			if n, ok := pbfield.Varint(packed); !ok || !d.straight(at, integer, n) {
				return false
			}
		case list == featureFloats && len(packed) == 4:
			if task := d.steady.targets[at].task; task < 0 || !d.labelIs(task, single(packed)) {
				return false
			}
		default:
			return false
		}
	}
	return len(b) == 0
}

func (d *Decoder) straightMonolith(b []byte) bool {
	for _, at := range d.before() {
		list, packed, n := d.steady.heads[at].Named(d.names[at], b)
		if n == 0 || !d.straightFID(at, list, packed) {
			return false
		}
		b = b[n:]
	}
	wants := d.steady.beside >= 0
	for len(b) > 0 {
		num, typ, content, n := pbfield.Next(b)
		switch {
		case n < 0 || typ != protowire.BytesType:
			return false
		case num == mExampleLine:
		case num == mExampleLabel && wants && len(content) == 4 && d.labelIs(d.steady.beside, single(content)):
			wants = false
		default:
			return false
		}
		b = b[n:]
	}
	return !wants
}

func (d *Decoder) straightInstance(b []byte) bool {
	s := d.steady
	if s.times == nil {
		s.times = make([]uint64, len(d.features))
	}
	s.message++
	there, wants := 0, s.beside >= 0
	for len(b) > 0 {
		num, typ, content, n := pbfield.Next(b)
		switch {
		case n < 0 || typ != protowire.BytesType:
			return false
		case num == mInstanceLine:
		case num == mInstanceLabel && wants && len(content) == 4 && d.labelIs(s.beside, single(content)):
			wants = false
		case num == mInstanceFID && len(content)%8 == 0:
			for ; len(content) > 0; content = content[8:] {
				id := binary.LittleEndian.Uint64(content)
				f := s.slots[layout.SlotV1(id)] - 1
				if f < 0 {
					continue // nobody reads that slot
				}
				if s.times[f] == s.message || !d.straightID(int(f), fid, layout.V2FromV1(id)) {
					return false
				}
				s.times[f] = s.message
				there++
			}
		default:
			return false
		}
		b = b[n:]
	}
	return !wants && there == s.wanted
}

func (d *Decoder) straightRow(i int) bool {
	for _, at := range d.steady.columns {
		c := &d.cells[at]
		e := c.first
		if !c.shared {
			e += i
		}
		list, packed, ok := pbfield.Packed(d.elems[e])
		switch {
		case !ok:
			return false
		case at != d.labels:
			if !d.straightFID(at, list, packed) {
				return false
			}
		case list != monolithFloats || len(packed) != 4 || !d.labelIs(d.steady.beside, single(packed)):
			return false
		}
	}
	return true
}

// single is the float that four bytes are.
func single(b []byte) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// straightFID takes the one id of a field's list.
func (d *Decoder) straightFID(at int, list byte, packed []byte) bool {
	if len(packed) != 8 || list == 0 || list > monolithV2 {
		return false
	}
	id := binary.LittleEndian.Uint64(packed)
	if list == monolithV1 {
		id = layout.V2FromV1(id)
	}
	return d.straight(at, fid, id)
}

// straight takes a whole number or an id, as a field's.
func (d *Decoder) straight(at int, k kind, bits uint64) bool {
	to := &d.steady.targets[at]
	if to.feature >= 0 {
		return d.straightID(to.feature, k, bits)
	}
	return k == integer && d.labelIs(to.task, float64(int64(bits)))
}

func (d *Decoder) straightID(feature int, k kind, bits uint64) bool {
	c := &d.features[feature]
	id, ok := c.take(k, int64(bits))
	d.ids[feature] = modelspec.FID(c.slot, id)
	return ok
}

// labelIs notes what a task learns; not what would be refused.
func (d *Decoder) labelIs(task int, v float64) bool {
	label, err := d.labelOf(task, v)
	d.sample.Labels[task] = label
	return err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// straightInto adds the sample that was read.
func (d *Decoder) straightInto(b *runtime.Batch) bool {
	for i, t := range d.tasks {
		if d.sample.Weights[i] = 1; t.label < 0 {
			d.sample.Labels[i] = d.unlabelled()
		}
	}
	return b.AddSingle(d.ids, nil, d.sample.Labels, d.sample.Weights) == nil
}
