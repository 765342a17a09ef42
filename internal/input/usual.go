package input

import (
	"encoding/binary"
	"math"

	"github.com/monolith-go/monolith/internal/input/pbfield"
	"github.com/monolith-go/monolith/kernels/layout"
)

// Records of one producer are alike, and nearly every feature is one number. What follows reads
// that and nothing else: where ok is false the record may hold anything, which the whole reader
// then finds, or refuses.

// expected returns the declared field that stood at this position in the record before, if it has this name.
func (d *Decoder) expected(pos int, name []byte) (at int, ok bool) {
	if pos >= len(d.order) {
		return -1, false
	}
	at = d.order[pos]
	return at, at >= 0 && d.names[at] == string(name)
}

// usual reads the field of the name that stood at this position in the record before, if that is one list of packed numbers
// ([pbfield.Named]), and says which declared field it is. n is 0 where there is anything else.
func (d *Decoder) usual(pos int, b []byte) (at int, num byte, packed []byte, n int) {
	if pos >= len(d.order) || d.order[pos] < 0 {
		return 0, 0, nil, 0
	}
	at = d.order[pos]
	num, packed, n = pbfield.Named(d.names[at], b)
	return at, num, packed, n
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
		if n, ok := pbfield.Varint(packed); ok {
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
