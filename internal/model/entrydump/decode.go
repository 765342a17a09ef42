package entrydump

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

// Decode reads one EntryDump, packed floats or not. What is no EntryDump is ErrCorrupt;
// one with another number of values, other optimizers or slots than the layout's is
// ErrMismatch. Floats may be anything: whoever keeps the row checks them.
func (c *Codec) Decode(data []byte) (table.Row, error) {
	floats := make([]float32, c.Dim+c.Slots)
	e := entry{c: c, values: floats[:c.Dim:c.Dim], slots: floats[c.Dim:]}
	copy(e.slots, c.fresh)
	if err := walk(data, e.field); err != nil {
		return table.Row{}, err
	}
	if !e.hasID {
		return table.Row{}, fmt.Errorf("%w: a row has no id", ErrCorrupt)
	}
	if e.n != c.Dim {
		return table.Row{}, fmt.Errorf("%w: id %d has %d values where dim is %d", ErrMismatch, e.id, e.n, c.Dim)
	}
	if e.time < 0 || e.time > math.MaxUint32 {
		return table.Row{}, fmt.Errorf("%w: id %d was updated at %d, which is no time in 32 bits", ErrCorrupt, e.id, e.time)
	}
	r := table.Row{ID: e.id, Values: e.values, UnixSec: uint32(e.time), Tag: e.tag}
	if c.Bare {
		return r, nil
	}
	if len(e.kinds) == 0 && len(c.dumps) > 0 {
		if !c.Fresh {
			return r, fmt.Errorf("%w: id %d says nothing of its optimizer, which the table needs (%s): read it with fresh optimizers, or take a checkpoint of training", ErrMismatch, e.id, c.kinds())
		}
		return r, nil
	}
	if err := e.check(); err != nil {
		return r, err
	}
	r.Slots = e.slots
	return r, nil
}

func (c *Codec) kinds() string {
	var names []string
	for _, d := range c.dumps {
		names = append(names, d.kind)
	}
	return strings.Join(names, ", ")
}

// entry is an EntryDump being read.
type entry struct {
	c             *Codec
	hasID         bool
	id            int64
	time          int64
	tag           uint64
	n             int // values, and more than there is room for are counted only
	values, slots []float32
	kinds         []string
	counts        [][]int // per dump and plane, what came
	rest          []float32
}

func (e *entry) field(num protowire.Number, f fieldValue) error {
	var err error
	switch num {
	case fieldID:
		if f.typ != protowire.Fixed64Type {
			return f.wrong("id")
		}
		e.hasID, e.id = true, int64(f.number)
	case fieldNum:
		err = f.floats("num", func(x float32) {
			if e.n < len(e.values) {
				e.values[e.n] = x
			}
			e.n++
		})
	case fieldOpt:
		if f.typ != protowire.BytesType {
			return f.wrong("opt")
		}
		if e.c.Bare {
			return nil
		}
		return walk(f.bytes, e.opt)
	case fieldTime:
		if f.typ != protowire.VarintType {
			return f.wrong("last_update_ts_sec")
		}
		e.time = int64(f.number)
	case fieldTag:
		if f.typ != protowire.Fixed64Type {
			return f.wrong("tag")
		}
		e.tag = f.number
	case fieldRest:
		if e.c.Bare {
			return nil
		}
		err = f.floats("rest", func(x float32) { e.rest = append(e.rest, x) })
	}
	return err
}

// opt reads a field of OptimizerDump.
func (e *entry) opt(num protowire.Number, f fieldValue) error {
	if num != fieldDump {
		return nil
	}
	if f.typ != protowire.BytesType {
		return f.wrong("dump")
	}
	at := len(e.kinds)
	kind := ""
	counts := []int(nil)
	err := walk(f.bytes, func(num protowire.Number, f fieldValue) error {
		name := kindNames[num]
		if name == "" {
			return nil
		}
		if f.typ != protowire.BytesType {
			return f.wrong(name)
		}
		if kind != "" && kind != name {
			return fmt.Errorf("%w: one dump is both %s and %s", ErrCorrupt, kind, name)
		}
		kind = name
		if at >= len(e.c.dumps) || e.c.dumps[at].kind != name {
			return walk(f.bytes, func(protowire.Number, fieldValue) error { return nil })
		}
		d := &e.c.dumps[at]
		if counts == nil {
			counts = make([]int, len(d.planes))
		}
		return walk(f.bytes, func(num protowire.Number, f fieldValue) error { return e.plane(d, counts, num, f) })
	})
	if err != nil {
		return err
	}
	if kind == "" {
		kind = "nothing known here"
	}
	e.kinds, e.counts = append(e.kinds, kind), append(e.counts, counts)
	return nil
}

func (e *entry) plane(d *dumpFields, counts []int, num protowire.Number, f fieldValue) error {
	for i := range d.planes {
		p := &d.planes[i]
		if p.number != num {
			continue
		}
		if p.Integer {
			if f.typ != protowire.VarintType {
				return f.wrong(p.Name)
			}
			n := int64(f.number)
			if n < 0 || n >= 1<<48 {
				return fmt.Errorf("%w: %s is %d, it should be 0 to 2^48-1", ErrMismatch, p.Name, n)
			}
			optim.PutInt(e.slots[p.From:p.To], n)
			counts[i] = p.To - p.From
			return nil
		}
		if p.single {
			counts[i] = 0 // the last one counts
		}
		return f.floats(p.Name, func(x float32) {
			if counts[i] < p.To-p.From {
				e.slots[p.From+counts[i]] = x
			}
			counts[i]++
		})
	}
	return nil
}

// check compares what came with the layout.
func (e *entry) check() error {
	c := e.c
	if len(e.kinds) != len(c.dumps) {
		return fmt.Errorf("%w: id %d was saved by %d optimizers (%s), the table has %d (%s)", ErrMismatch, e.id, len(e.kinds), strings.Join(e.kinds[:min(len(e.kinds), 16)], ", "), len(c.dumps), c.kinds())
	}
	for i := range c.dumps {
		d := &c.dumps[i]
		if e.kinds[i] != d.kind {
			return fmt.Errorf("%w: id %d was saved by %s, the table has %s", ErrMismatch, e.id, strings.Join(e.kinds, ", "), c.kinds())
		}
		for j, p := range d.planes {
			got := 0
			if e.counts[i] != nil {
				got = e.counts[i][j]
			}
			if want := p.To - p.From; got != want {
				return fmt.Errorf("%w: id %d has %d numbers of %s.%s where %d belong", ErrMismatch, e.id, got, d.kind, p.Name, want)
			}
		}
	}
	if len(e.rest) == 0 && c.fresh != nil {
		return nil // the original's: what it does not keep starts anew
	}
	n := 0
	for _, part := range c.rest {
		n += part[1] - part[0]
	}
	if len(e.rest) != n {
		return fmt.Errorf("%w: id %d has %d slots beside its dumps where %d belong", ErrMismatch, e.id, len(e.rest), n)
	}
	rest := e.rest
	for _, part := range c.rest {
		rest = rest[copy(e.slots[part[0]:part[1]], rest):]
	}
	return nil
}

var kindNames = func() map[protowire.Number]string {
	names := map[protowire.Number]string{}
	fields := (*monolithpb.SingleOptimizerDump)(nil).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		names[fields.Get(i).Number()] = string(fields.Get(i).Name())
	}
	return names
}()

// fieldValue is one field as it stands on the wire.
type fieldValue struct {
	typ    protowire.Type
	number uint64 // of the three types of numbers
	bytes  []byte
}

func (f fieldValue) wrong(name string) error {
	return fmt.Errorf("%w: field %s has wire type %d", ErrCorrupt, name, f.typ)
}

// floats calls add with one float, or with those of a packed list.
func (f fieldValue) floats(name string, add func(float32)) error {
	switch {
	case f.typ == protowire.Fixed32Type:
		add(math.Float32frombits(uint32(f.number)))
		return nil
	case f.typ == protowire.BytesType && len(f.bytes)%4 == 0:
		for b := f.bytes; len(b) > 0; b = b[4:] {
			add(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
		return nil
	}
	return f.wrong(name)
}

// walk calls visit with each field of a message.
func walk(b []byte, visit func(protowire.Number, fieldValue) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: a field cannot be read: %w", ErrCorrupt, protowire.ParseError(n))
		}
		b = b[n:]
		f := fieldValue{typ: typ}
		switch typ {
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var x uint32
			x, n = protowire.ConsumeFixed32(b)
			f.number = uint64(x)
		case protowire.Fixed64Type:
			f.number, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return fmt.Errorf("%w: field %d cannot be read: %w", ErrCorrupt, num, protowire.ParseError(n))
		}
		b = b[n:]
		if err := visit(num, f); err != nil {
			return err
		}
	}
	return nil
}
