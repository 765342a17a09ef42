package input

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/input/pbfield"
)

// The numbers of tf.train's messages that are read here, each in the one above it.
const (
	exampleFeatures = 1 // Features
	featuresEntry   = 1 // of the map: string, Feature
	entryKey        = 1
	entryValue      = 2
	featureBytes    = 1 // BytesList
	featureFloats   = 2 // FloatList
	featureInt64s   = 3 // Int64List
	listValue       = 1
)

// errKey is, as [pbfield.ErrNumber], what proto.Unmarshal refuses and protowire does not.
var errKey = errors.New("a feature's name is not UTF-8")

// readExample finds the declared fields of one tf.train.Example. As in protobuf, the last
// feature of a name counts, and what is repeated within one is merged.
func (d *Decoder) readExample(record []byte) error {
	if len(record) == 0 {
		return errEmpty
	}
	d.entries = 0
	err := pbfield.Each(record, func(num protowire.Number, typ protowire.Type, b []byte) error {
		if num != exampleFeatures || typ != protowire.BytesType {
			return nil
		}
		return d.featureMap(b)
	})
	if err != nil {
		return fmt.Errorf("the record is not a tf.train.Example: %w", err)
	}
	return nil
}

// featureMap reads the features by name.
func (d *Decoder) featureMap(b []byte) error {
	for len(b) > 0 {
		if at, list, packed, n := d.usual(d.entries, b); n > 0 && d.oneOfExample(at, list, packed) {
			b = b[n:]
			d.entries++
			continue
		}
		num, typ, content, n := pbfield.Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if num > protowire.MaxValidNumber {
			return pbfield.ErrNumber
		}
		b = b[n:]
		if num != featuresEntry || typ != protowire.BytesType {
			continue
		}
		if err := d.entry(content); err != nil {
			return err
		}
	}
	return nil
}

// entry reads one of them.
func (d *Decoder) entry(b []byte) error {
	var key []byte
	d.open = value{kind: listed, first: len(d.items)}
	for len(b) > 0 {
		num, typ, content, n := pbfield.Next(b)
		switch {
		case n < 0:
			return protowire.ParseError(n)
		case num > protowire.MaxValidNumber:
			return pbfield.ErrNumber
		case typ != protowire.BytesType:
		case num == entryKey:
			if key = content; !utf8.Valid(key) {
				return errKey
			}
		case num == entryValue:
			if err := pbfield.Each(content, d.list); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	if at := d.find(d.entries, key); at >= 0 {
		d.open.count = len(d.items) - d.open.first
		d.found[at] = d.open
	} else {
		d.items = d.items[:d.open.first]
	}
	d.entries++
	return nil
}

// list reads one, after the other of its kind, or instead of one of another kind.
func (d *Decoder) list(num protowire.Number, typ protowire.Type, b []byte) error {
	if typ != protowire.BytesType || num > featureInt64s {
		return nil
	}
	kind := [...]kind{featureBytes: blob, featureFloats: float, featureInt64s: integer}[num]
	if d.open.kind != kind {
		d.open.kind, d.items = kind, d.items[:d.open.first]
	}
	return pbfield.Each(b, d.item)
}

// item reads one of a list, or a packed run of them.
func (d *Decoder) item(num protowire.Number, typ protowire.Type, b []byte) error {
	kind := d.open.kind
	switch {
	case num != listValue:
	case typ == protowire.BytesType && kind == blob:
		d.items = append(d.items, item{raw: b})
	case typ == protowire.BytesType && kind != blob:
		return d.packed(b)
	case typ == protowire.Fixed32Type && kind == float, typ == protowire.VarintType && kind == integer:
		return d.packed(b)
	}
	return nil
}

// packed reads numbers of the list's kind, up to the end of b.
func (d *Decoder) packed(b []byte) error {
	for len(b) > 0 {
		var bits uint64
		var n int
		if d.open.kind == float {
			var single uint32
			single, n = protowire.ConsumeFixed32(b)
			bits = math.Float64bits(float64(math.Float32frombits(single)))
		} else {
			bits, n = protowire.ConsumeVarint(b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		d.items, b = append(d.items, item{bits: bits}), b[n:]
	}
	return nil
}
