package input

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/kernels/layout"
)

// Records of one producer are alike, and nearly every feature is one number. What follows reads
// that and nothing else: where ok is false the record may hold anything, which the whole reader
// then finds, or refuses.

// The tag of a field that has a length.
const lengthTag = byte(protowire.BytesType)

// expected returns the declared field that stood at this position in the record before, if it has this name.
func (d *Decoder) expected(pos int, name []byte) (at int, ok bool) {
	if pos >= len(d.order) {
		return -1, false
	}
	at = d.order[pos]
	return at, at >= 0 && d.names[at] == string(name)
}

// usual reads a field 1 of fewer than 128 bytes, a message of the name that stood at this position in the record before and
// of a Feature that is a list of packed numbers, of TensorFlow or of Monolith: the declared field, the number of the list
// in the Feature, its bytes, and how many bytes of b all of it has. It is 0 where there is anything else.
//
//	0a entry  0a len(name) name  12 feature  list's tag, its length  0a len(packed) packed
func (d *Decoder) usual(pos int, b []byte) (at int, num byte, packed []byte, n int) {
	if pos >= len(d.order) || d.order[pos] < 0 {
		return 0, 0, nil, 0
	}
	at = d.order[pos]
	num, packed, n = usualOf(d.names[at], b)
	return at, num, packed, n
}

// usualOf is usual of the field of a name.
func usualOf(name string, b []byte) (num byte, packed []byte, n int) {
	end := 4 + len(name)
	if len(b) < end+6 || b[0] != featuresEntry<<3|lengthTag || b[2] != entryKey<<3|lengthTag || int(b[3]) != len(name) || string(b[4:end]) != name {
		return 0, nil, 0
	}
	v := b[end:]
	entry, feature, list, size := int(b[1]), int(v[1]), int(v[3]), int(v[5])
	if v[0] != entryValue<<3|lengthTag || v[2]&0x87 != lengthTag || v[4] != listValue<<3|lengthTag || entry > 0x7f ||
		entry != len(name)+4+feature || feature != list+2 || list != size+2 || len(v) < size+6 {
		return 0, nil, 0
	}
	return v[2] >> 3, v[6 : size+6], end + 6 + size
}

// lone reads a Feature that is a list of packed numbers in fewer than 128 bytes: its field's number, and these bytes.
func lone(b []byte) (num byte, packed []byte, ok bool) {
	if len(b) < 4 || len(b) > 0x7f || b[0]&0x87 != lengthTag || int(b[1]) != len(b)-2 || b[2] != listValue<<3|lengthTag || int(b[3]) != len(b)-4 {
		return 0, nil, false
	}
	return b[0] >> 3, b[4:], true
}

// one notes a number as all that a field holds.
func (d *Decoder) one(at int, k kind, bits uint64) {
	v := &d.found[at]
	v.kind, v.first, v.count, v.number = k, alone, 1, int64(bits)
}

// oneOfExample reads a list of a tf.train Feature that has one number.
func (d *Decoder) oneOfExample(at int, num byte, packed []byte) bool {
	switch {
	case num == featureInt64s:
		if n, ok := varint(packed); ok {
			d.one(at, integer, n)
			return true
		}
	case num == featureFloats && len(packed) == 4:
		d.one(at, float, math.Float64bits(float64(math.Float32frombits(binary.LittleEndian.Uint32(packed)))))
		return true
	}
	return false
}

// oneOfMonolith reads a list of a Feature that has one id, into a field that had none.
func (d *Decoder) oneOfMonolith(at int, num byte, packed []byte) bool {
	if len(packed) != 8 || num == 0 || num > monolithV2 || d.found[at].kind != absent {
		return false
	}
	id := binary.LittleEndian.Uint64(packed)
	if num == monolithV1 {
		id = layout.V2FromV1(id)
	}
	d.one(at, fid, id)
	return true
}

// varint reads one of up to nine bytes that are all there are. Eight of them, which ids with their slots have, hold seven
// bits each, brought together in three steps.
func varint(b []byte) (n uint64, ok bool) {
	if len(b) == 8 {
		n = binary.LittleEndian.Uint64(b)
		ok = n&0x8080808080808080 == 0x0080808080808080
		n &= 0x7f7f7f7f7f7f7f7f
		n = n&0x007f007f007f007f | n&0x7f007f007f007f00>>1
		n = n&0x00003fff00003fff | n&0x3fff00003fff0000>>2
		return n&0x000000000fffffff | n&0x0fffffff00000000>>4, ok
	}
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	last := len(b) - 1
	for i, c := range b[:last] {
		if c < 0x80 {
			return 0, false
		}
		n |= uint64(c&0x7f) << (7 * i)
	}
	return n | uint64(b[last])<<(7*last), b[last] < 0x80
}

// usualMember reads a key that stood at this position in the record before, and a whole number of up to 18
// digits, of which the first is no 0: it returns the offset behind them, or 0.
func (d *Decoder) usualMember(pos int, b []byte, i int) int {
	if pos >= len(d.order) || d.order[pos] < 0 {
		return 0
	}
	at := d.order[pos]
	name := d.names[at]
	i++
	end := i + len(name)
	if end+2 >= len(b) || b[end] != '"' || b[end+1] != ':' || string(b[i:end]) != name || !d.plain[at] || d.found[at].kind != absent {
		return 0
	}
	begin := end + 2
	if b[begin]-'1' > 8 {
		return 0
	}
	n, most := int64(0), min(len(b), begin+18)
	for i = begin; i < most && b[i]-'0' <= 9; i++ {
		n = 10*n + int64(b[i]-'0')
	}
	if i == len(b) || b[i] != ',' && b[i] != '}' {
		return 0
	}
	d.found[at] = value{kind: text, raw: b[begin:i], number: n}
	return i
}
