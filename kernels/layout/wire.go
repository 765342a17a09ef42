package layout

import (
	"encoding/binary"
	"errors"
)

// The few rules of protobuf's wire format that reading ids needs. A field of an
// unexpected wire type is an unknown field, as in every protobuf library.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wireStart  = 3
	wireEnd    = 4
	wire32     = 5

	maxField = 1<<29 - 1
	maxDepth = 100 // of unknown groups
)

var (
	errTruncated = errors.New("the message is cut short")
	errTag       = errors.New("the message has a tag that protobuf does not allow")
	errVarint    = errors.New("the message has a number longer than 64 bits")
	errDepth     = errors.New("the message nests groups too deeply")
	errPacked    = errors.New("the message has packed ids that are not 8 bytes each")
)

// field is one field of a message: its number, wire type and either value or bytes.
type field struct {
	num   uint32
	typ   uint8
	value uint64
	bytes []byte
}

// message is what is left to read of one.
type message []byte

// next reads a field; at the end of the message ok is false. Groups are skipped.
func (m *message) next() (f field, ok bool, err error) {
	data := *m
	if len(data) >= 2 && data[0] >= 8 && data[0] < 0x80 && data[0]&7 == wireBytes && data[1] < 0x80 && int(data[1])+2 <= len(data) {
		// A short one of the first 15 fields, as nearly all are.
		n := int(data[1]) + 2
		*m = data[n:]
		return field{num: uint32(data[0] >> 3), typ: wireBytes, bytes: data[2:n]}, true, nil
	}
	for len(*m) > 0 {
		if f, err = m.field(); err != nil {
			return f, false, err
		}
		if f.typ != wireStart {
			return f, f.typ != wireEnd, endError(f)
		}
		if err = m.skipGroup(f.num, 1); err != nil {
			return f, false, err
		}
	}
	return field{}, false, nil
}

func endError(f field) error {
	if f.typ == wireEnd {
		return errTag // nothing began
	}
	return nil
}

func (m *message) skipGroup(num uint32, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	for {
		f, err := m.field()
		switch {
		case err != nil:
			return err
		case f.typ == wireEnd && f.num == num:
			return nil
		case f.typ == wireEnd:
			return errTag
		case f.typ == wireStart:
			if err := m.skipGroup(f.num, depth+1); err != nil {
				return err
			}
		}
	}
}

// field reads a tag and, unless a group starts or ends, what it announces.
func (m *message) field() (f field, err error) {
	tag, err := m.varint()
	if err != nil {
		return f, err
	}
	if tag>>3 < 1 || tag>>3 > maxField {
		return f, errTag
	}
	f.num, f.typ = uint32(tag>>3), uint8(tag&7)
	data := *m
	switch f.typ {
	case wireVarint:
		f.value, err = m.varint()
	case wire64:
		if len(data) < 8 {
			return f, errTruncated
		}
		f.value, *m = binary.LittleEndian.Uint64(data), data[8:]
	case wire32:
		if len(data) < 4 {
			return f, errTruncated
		}
		f.value, *m = uint64(binary.LittleEndian.Uint32(data)), data[4:]
	case wireBytes:
		n, err := m.varint()
		if err != nil {
			return f, err
		}
		if n > uint64(len(*m)) {
			return f, errTruncated
		}
		f.bytes, *m = (*m)[:n], (*m)[n:]
	case wireStart, wireEnd:
	default:
		err = errTag
	}
	return f, err
}

func (m *message) varint() (uint64, error) {
	data := *m
	if len(data) > 0 && data[0] < 0x80 {
		*m = data[1:]
		return uint64(data[0]), nil
	}
	v, n := binary.Uvarint(data)
	switch {
	case n == 0:
		return 0, errTruncated
	case n < 0:
		return 0, errVarint
	}
	*m = data[n:]
	return v, nil
}

// appendFixed64 appends what a repeated fixed64 field holds here: one element, or many
// packed ones. Another wire type is not this field and holds none.
func appendFixed64(dst []uint64, f field) ([]uint64, error) {
	switch f.typ {
	case wire64:
		return append(dst, f.value), nil
	case wireBytes:
		if len(f.bytes)%8 != 0 {
			return dst, errPacked
		}
		for data := f.bytes; len(data) >= 8; data = data[8:] {
			dst = append(dst, binary.LittleEndian.Uint64(data))
		}
	}
	return dst, nil
}
