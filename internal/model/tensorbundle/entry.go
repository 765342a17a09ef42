package tensorbundle

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Type is TensorFlow's number of a data type.
type Type int32

// The types that are read and written here.
const (
	Float Type = 1
	Int64 Type = 9
)

func (t Type) String() string {
	switch t {
	case Float:
		return "float32"
	case Int64:
		return "int64"
	}
	return fmt.Sprintf("type %d of TensorFlow", int32(t))
}

// width is the bytes of one number, 0 where they are not read here.
func (t Type) width() int {
	switch t {
	case Float:
		return 4
	case Int64:
		return 8
	}
	return 0
}

// Entry is what the index says of a tensor.
type Entry struct {
	Name  string
	Type  Type
	Shape []int64

	shard        int64
	offset, size int64
	sum          uint32
	sliced       bool // it is there in parts
}

// Numbers is the product of the shape.
func (e *Entry) Numbers() int64 {
	n := int64(1)
	for _, d := range e.Shape {
		n *= d
	}
	return n
}

// header is the value under the empty key: how many files of data there are.
func appendHeader(shards int) []byte {
	b := protowire.AppendTag(nil, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(shards))
	version := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	return protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), version)
}

func readHeader(b []byte) (shards int64, err error) {
	err = fields(b, func(num protowire.Number, v uint64, _ []byte) error {
		switch {
		case num == 1:
			shards = int64(v)
		case num == 2 && v != 0:
			return errors.New("its numbers are big endian, which is not read here")
		}
		return nil
	})
	if err == nil && (shards < 1 || shards > 99999) {
		err = fmt.Errorf("it has %d files of data", shards)
	}
	return shards, err
}

func (e *Entry) encode() []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(e.Type))
	var shape []byte
	for _, d := range e.Shape {
		dim := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(d))
		shape = protowire.AppendBytes(protowire.AppendTag(shape, 2, protowire.BytesType), dim)
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), shape)
	b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), uint64(e.offset))
	b = protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), uint64(e.size))
	return protowire.AppendFixed32(protowire.AppendTag(b, 6, protowire.Fixed32Type), e.sum)
}

func (e *Entry) decode(b []byte) error {
	err := fields(b, func(num protowire.Number, v uint64, bytes []byte) error {
		switch num {
		case 1:
			e.Type = Type(v)
		case 2:
			return fields(bytes, func(num protowire.Number, _ uint64, dim []byte) error {
				if num != 2 {
					return nil
				}
				size := int64(0)
				err := fields(dim, func(num protowire.Number, v uint64, _ []byte) error {
					if num == 1 {
						size = int64(v)
					}
					return nil
				})
				e.Shape = append(e.Shape, size)
				return err
			})
		case 3:
			e.shard = int64(v)
		case 4:
			e.offset = int64(v)
		case 5:
			e.size = int64(v)
		case 6:
			e.sum = uint32(v)
		case 7:
			e.sliced = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	numbers := int64(1)
	for _, d := range e.Shape {
		if d < 0 || d > math.MaxInt32 || d > 0 && numbers > maxTensor/d {
			return fmt.Errorf("its shape is %v, which is no size or too large to read", e.Shape)
		}
		numbers *= d
	}
	if w := e.Type.width(); e.offset < 0 || e.size < 0 || w > 0 && !e.sliced && e.size != numbers*int64(w) {
		return fmt.Errorf("%d bytes at %d are no %s of shape %v", e.size, e.offset, e.Type, e.Shape)
	}
	return nil
}

// fields calls visit for each field of a message; a number is v, all else bytes.
func fields(b []byte, visit func(num protowire.Number, v uint64, bytes []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var v uint64
		var bytes []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var x uint32
			x, n = protowire.ConsumeFixed32(b)
			v = uint64(x)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := visit(num, v, bytes); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
