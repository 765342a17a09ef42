package input

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/input/pbfield"
	"github.com/monolith-go/monolith/kernels/layout"
)

// The fields of Monolith's Feature, of which one is set.
const (
	monolithV1     = 1
	monolithV2     = 2
	monolithFloats = 3
	monolithReals  = 4 // doubles
	monolithInts   = 5
	monolithBytes  = 6
	monolithInt    = 12
	monolithFloat  = 13
	monolithReal   = 14
	monolithBlob   = 15
	monolithLast   = 16 // 7 to 11 and this one are lists of lists
)

// feature reads a Feature, or another part of the same one, into the value that is open.
func (d *Decoder) monolithFeature(b []byte) error {
	for len(b) > 0 {
		num, typ, content, n := pbfield.Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if num > monolithLast || typ != monolithWire[num] {
			continue
		}
		if d.set != num {
			d.set, d.items = num, d.items[:d.open.first]
		}
		d.open.kind = monolithKind[num]
		switch {
		case num >= monolithInt && num <= monolithBlob:
			d.items = d.items[:d.open.first]
			if err := d.scalar(num, content); err != nil {
				return err
			}
		case d.open.kind != lists:
			if err := d.elements(num, content); err != nil {
				return err
			}
		}
	}
	return nil
}

var (
	monolithWire = [monolithLast + 1]protowire.Type{
		0: 7, 1: protowire.BytesType, 2: protowire.BytesType, 3: protowire.BytesType, 4: protowire.BytesType, 5: protowire.BytesType, 6: protowire.BytesType,
		7: protowire.BytesType, 8: protowire.BytesType, 9: protowire.BytesType, 10: protowire.BytesType, 11: protowire.BytesType,
		monolithInt: protowire.VarintType, monolithFloat: protowire.Fixed32Type, monolithReal: protowire.Fixed64Type, monolithBlob: protowire.BytesType, 16: protowire.BytesType,
	}
	monolithKind = [monolithLast + 1]kind{
		monolithV1: fid, monolithV2: fid, monolithFloats: float, monolithReals: float, monolithInts: integer, monolithBytes: blob,
		7: lists, 8: lists, 9: lists, 10: lists, 11: lists,
		monolithInt: integer, monolithFloat: float, monolithReal: float, monolithBlob: blob, 16: lists,
	}
	// of the values of lists, by the field of Feature
	monolithItem = [monolithBytes + 1]protowire.Type{
		monolithV1: protowire.Fixed64Type, monolithV2: protowire.Fixed64Type, monolithFloats: protowire.Fixed32Type,
		monolithReals: protowire.Fixed64Type, monolithInts: protowire.VarintType, monolithBytes: protowire.BytesType,
	}
)

// elements reads a list, whose numbers may be packed.
func (d *Decoder) elements(num protowire.Number, b []byte) error {
	for len(b) > 0 {
		at, typ, content, n := pbfield.Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case at != listValue:
		case typ == monolithItem[num]:
			if err := d.scalar(num, content); err != nil {
				return err
			}
		case typ == protowire.BytesType:
			if err := d.run(num, content); err != nil {
				return err
			}
		}
	}
	return nil
}

// run reads packed numbers.
func (d *Decoder) run(num protowire.Number, b []byte) error {
	for len(b) > 0 {
		n := protowire.ConsumeFieldValue(listValue, monolithItem[num], b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := d.scalar(num, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// scalar adds one value of a Feature.
func (d *Decoder) scalar(num protowire.Number, b []byte) error {
	var it item
	switch num {
	case monolithV1, monolithV2:
		it.bits, _ = protowire.ConsumeFixed64(b)
		if num == monolithV1 {
			it.bits = layout.V2FromV1(it.bits)
		}
	case monolithFloats, monolithFloat:
		single, _ := protowire.ConsumeFixed32(b)
		it.bits = math.Float64bits(float64(math.Float32frombits(single)))
	case monolithReals, monolithReal:
		it.bits, _ = protowire.ConsumeFixed64(b)
	case monolithInts, monolithInt:
		it.bits, _ = protowire.ConsumeVarint(b)
	default:
		it.raw = b
	}
	d.items = append(d.items, it)
	return nil
}

// Names that Monolith reserves, for what is no feature.
const (
	LabelName  = "__LABEL__" // __LABEL__.1 is the second
	weightName = "instance_weight"
	lineName   = "__LINE_ID__" // __LINE_ID__.req_time is a field of it
)

// lineField is one of a LineId's that may be read.
type lineField struct {
	num  protowire.Number
	kind kind
	typ  protowire.Type
	list bool
}

var lineFields = map[string]lineField{
	"uid": {2, integer, protowire.Fixed64Type, false}, "req_time": {3, integer, protowire.VarintType, false}, "item_id": {4, integer, protowire.Fixed64Type, false},
	"actions": {6, integer, protowire.VarintType, true}, "chnid": {19, integer, protowire.VarintType, false}, "pre_actions": {23, integer, protowire.VarintType, true},
	"sample_rate": {27, float, protowire.Fixed32Type, false}, "special_strategies": {39, integer, protowire.VarintType, true}, "device_type": {41, blob, protowire.BytesType, false},
	"cid": {48, blob, protowire.BytesType, false}, "user_id": {49, blob, protowire.BytesType, false}, "is_draw": {87, integer, protowire.VarintType, false},
	"rank": {145, integer, protowire.VarintType, false}, "data_source_name": {235, blob, protowire.BytesType, false},
}

var errTwice = errors.New("it stands there twice")

// close notes the value that is open as a field's, which had none.
func (d *Decoder) closed(at int) error {
	if d.found[at].kind != absent {
		return fmt.Errorf("feature %q: %w", d.names[at], errTwice)
	}
	d.open.count = len(d.items) - d.open.first
	d.found[at] = d.open
	return nil
}

// begin opens a value.
func (d *Decoder) begin(k kind) { d.open, d.set = value{kind: k, first: len(d.items)}, 0 }

// reserved takes what stands under reserved names, or beside the features, apart.
func (d *Decoder) reserved(line []byte) error {
	if v := &d.found[d.line]; v.count > 0 {
		line = d.nthOf(v, 0).raw
	}
	for _, r := range d.parts {
		switch of := d.found[d.labels]; {
		case r.field.num == 0 && r.nth < of.count:
			if of.first != alone {
				of.first += r.nth
			}
			of.count = 1
			d.found[r.at] = of
		case r.field.num > 0:
			d.begin(r.field.kind)
			if err := d.lineID(r.field, line); err != nil {
				return fmt.Errorf("%s: %w", lineName, err)
			}
			if d.open.count = len(d.items) - d.open.first; d.open.count > 0 {
				d.found[r.at] = d.open
			}
		}
	}
	return nil
}

// lineID reads one field of a LineId.
func (d *Decoder) lineID(f lineField, b []byte) error {
	for len(b) > 0 {
		num, typ, content, n := pbfield.Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if num != f.num {
			continue
		}
		if f.list && typ == protowire.BytesType {
			if err := d.run(monolithInts, content); err != nil {
				return err
			}
			continue
		}
		if typ != f.typ {
			continue
		}
		if !f.list { // the last one counts
			d.items = d.items[:d.open.first]
		}
		var it item
		switch typ {
		case protowire.VarintType:
			it.bits, _ = protowire.ConsumeVarint(content)
		case protowire.Fixed64Type:
			it.bits, _ = protowire.ConsumeFixed64(content)
		case protowire.Fixed32Type:
			single, _ := protowire.ConsumeFixed32(content)
			it.bits = math.Float64bits(float64(math.Float32frombits(single)))
		default:
			it.raw = content
		}
		d.items = append(d.items, it)
	}
	return nil
}
