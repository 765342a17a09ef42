// Package pbfield reads single fields of protobuf messages: any of them, and quickly those that nearly all records have.
// Where ok is false or n is 0 a message may hold anything, which [Next] tells.
package pbfield

import (
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// What [Named] and [Packed] read stands in fields of these numbers, of TensorFlow's messages and of Monolith's.
const (
	entry   = 1 // of a message
	name    = 1 // of an entry
	feature = 2 // of an entry
	values  = 1 // of a list
)

// length is the tag of a field that has one, without its number.
const length = byte(protowire.BytesType)

// ErrNumber is what proto.Unmarshal refuses and protowire does not.
var ErrNumber = errors.New("a field's number is beyond what protobuf has")

// Each goes through the fields of a message: f gets the content of those that have a length,
// and the bytes after the tag of others.
func Each(b []byte, f func(num protowire.Number, typ protowire.Type, b []byte) error) error {
	for len(b) > 0 {
		num, typ, content, n := Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if num > protowire.MaxValidNumber {
			return ErrNumber
		}
		if err := f(num, typ, content); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Next reads one field of a message, of n bytes with its tag. A number below 16 and a length
// below 128 take a byte each, as nearly all do.
func Next(b []byte) (num protowire.Number, typ protowire.Type, content []byte, n int) {
	if len(b) > 1 && b[0]&0x87 == byte(protowire.BytesType) && b[0] > 7 && b[1] < 0x80 && int(b[1]) <= len(b)-2 {
		n = 2 + int(b[1])
		return protowire.Number(b[0] >> 3), protowire.BytesType, b[2:n], n
	}
	num, typ, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		return 0, 0, nil, tag
	}
	if n = protowire.ConsumeFieldValue(num, typ, b[tag:]); n < 0 {
		return 0, 0, nil, n
	}
	content = b[tag : tag+n]
	if typ == protowire.BytesType {
		content, _ = protowire.ConsumeBytes(content)
	}
	return num, typ, content, tag + n
}

// Named reads a field 1 of fewer than 128 bytes, a message of a name and of a Feature that is a list of packed numbers: the
// number of the list in the Feature, its bytes, and how many bytes of b all of it has.
//
//	0a entry  0a len(name) name  12 feature  list's tag, its length  0a len(packed) packed
func Named(of string, b []byte) (num byte, packed []byte, n int) {
	end := 4 + len(of)
	if len(b) < end+6 || b[0] != entry<<3|length || b[2] != name<<3|length || int(b[3]) != len(of) || string(b[4:end]) != of {
		return 0, nil, 0
	}
	v := b[end:]
	whole, message, list, size := int(b[1]), int(v[1]), int(v[3]), int(v[5])
	if v[0] != feature<<3|length || v[2]&0x87 != length || v[2] < 8 || v[4] != values<<3|length || whole > 0x7f ||
		whole != len(of)+4+message || message != list+2 || list != size+2 || len(v) < size+6 {
		return 0, nil, 0
	}
	return v[2] >> 3, v[6 : size+6], end + 6 + size
}

// Head remembers the bytes that stood before a field's numbers, as one producer's records have them again and again.
type Head struct {
	bytes []byte // up to the numbers; none: nothing is remembered
	size  int    // of the numbers behind them
	num   byte   // of their list
}

// Named is the function of that name, which is quicker where the numbers have as many bytes as they had the time before.
// A Head is of one name.
func (h *Head) Named(of string, b []byte) (num byte, packed []byte, n int) {
	if end := len(h.bytes); end > 0 && len(b)-end >= h.size && string(b[:end]) == string(h.bytes) {
		return h.num, b[end : end+h.size], end + h.size
	}
	if num, packed, n = Named(of, b); n > 0 {
		h.bytes, h.size, h.num = append(h.bytes[:0], b[:n-len(packed)]...), len(packed), num
	}
	return num, packed, n
}

// Packed reads a Feature that is a list of packed numbers in fewer than 128 bytes: its field's number, and these bytes.
func Packed(b []byte) (num byte, packed []byte, ok bool) {
	if len(b) < 4 || len(b) > 0x7f || b[0]&0x87 != length || b[0] < 8 || int(b[1]) != len(b)-2 || b[2] != values<<3|length || int(b[3]) != len(b)-4 {
		return 0, nil, false
	}
	return b[0] >> 3, b[4:], true
}

// Varint reads one of up to nine bytes that are all there are. Eight of them, which ids with their slots have, hold seven
// bits each, brought together in three steps.
func Varint(b []byte) (n uint64, ok bool) {
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
