// Package entrydump writes and reads embedding tables in the original's files: EntryDump
// records for one table, the snappy-framed stream with its counts for several, and beside
// them what the original has no use for: checksums of whole sets, and filters' states.
//
// A set is the files of one save, `name-00000-of-00002` and so on. Nothing of it has its
// name before all of it is on disk.
package entrydump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

var (
	// ErrCorrupt: the files are not what was written. The message names the file.
	ErrCorrupt = errors.New("table file is corrupt")
	// ErrMismatch: the files are whole, but another table's.
	ErrMismatch = errors.New("table file does not fit the table")
	// ErrIncomplete: files of a set are missing, or of several sets.
	ErrIncomplete = errors.New("set of table files is not complete")
)

// Field numbers of EntryDump; the last two are ours.
const (
	fieldID   = 1
	fieldNum  = 2
	fieldOpt  = 3
	fieldTime = 4
	fieldTag  = 1000
	fieldRest = 1001

	fieldDump = 1 // of OptimizerDump
)

// Layout says what a row holds and where its slots go in an EntryDump.
type Layout struct {
	Dim   int
	Slots int
	// Dumps are the messages of opt, as optim.Dumper lists them. None: rows are written
	// without opt, and their slots, if there are any, in a field of ours alone.
	Dumps []optim.Dump
}

// LayoutOf is the layout of the rows of a table that cfg describes, and what the slots
// of a fresh row are. A serving table has none.
func LayoutOf(cfg table.Config) (l Layout, fresh []float32) {
	segments := cfg.Segments
	if segments == nil {
		segments = []table.Segment{{Dim: cfg.Dim, Optimizer: cfg.Optimizer}}
	}
	for _, s := range segments {
		l.Dim += s.Dim
		if cfg.Serving {
			continue
		}
		if d, ok := s.Optimizer.(optim.Dumper); ok {
			for _, dump := range d.Dumps(s.Dim) {
				moved := optim.Dump{Kind: dump.Kind}
				for _, p := range dump.Planes {
					p.From, p.To = p.From+l.Slots, p.To+l.Slots
					moved.Planes = append(moved.Planes, p)
				}
				l.Dumps = append(l.Dumps, moved)
			}
		}
		at := len(fresh)
		fresh = append(fresh, make([]float32, s.Optimizer.SlotSize(s.Dim))...)
		s.Optimizer.InitSlots(fresh[at:])
		l.Slots = len(fresh)
	}
	return l, fresh
}

// Codec turns rows of one layout into EntryDumps and back. It may be used concurrently.
type Codec struct {
	Layout
	// Fresh makes Decode take rows without opt, whose optimizers then start anew; else
	// they are refused where the layout has dumps.
	Fresh bool
	// Bare drops opt: Decode passes over it, Encode leaves it out. For serving tables.
	Bare bool

	fresh []float32
	dumps []dumpFields
	rest  [][2]int // the slots outside of all planes
}

// dumpFields are the numbers of a dump and its planes, planes ascending.
type dumpFields struct {
	kind   string
	number protowire.Number
	planes []planeField
}

type planeField struct {
	optim.Plane
	number protowire.Number
	single bool // one float, not a list
}

// NewCodec checks l against the messages there are. fresh are the slots of a new row, or
// nil where every slot is in the files.
func NewCodec(l Layout, fresh []float32) (*Codec, error) {
	if l.Dim < 1 || l.Dim > table.MaxDim || l.Slots < 0 || l.Slots > 16*table.MaxDim || fresh != nil && len(fresh) != l.Slots {
		return nil, fmt.Errorf("rows of %d values and %d slots: give 1 to %d values, and fresh slots for all", l.Dim, l.Slots, table.MaxDim)
	}
	c := &Codec{Layout: l, fresh: fresh}
	kinds := (*monolithpb.SingleOptimizerDump)(nil).ProtoReflect().Descriptor().Fields()
	taken := make([]bool, l.Slots)
	for _, d := range l.Dumps {
		kind := kinds.ByName(protoreflect.Name(d.Kind))
		if kind == nil {
			return nil, fmt.Errorf("optimizer dump %q is unknown", d.Kind)
		}
		f := dumpFields{kind: d.Kind, number: kind.Number()}
		fields := kind.Message().Fields()
		for i := range fields.Len() { // in the order of numbers, as protobuf writes
			field := fields.Get(i)
			for _, p := range d.Planes {
				if string(field.Name()) != p.Name {
					continue
				}
				want := protoreflect.FloatKind
				if p.Integer {
					want = protoreflect.Int64Kind
				}
				single := !field.IsList()
				size := p.To - p.From
				if field.Kind() != want || p.From < 0 || p.To > l.Slots || size < 0 || p.Integer && size != 2 || single && !p.Integer && size != 1 {
					return nil, fmt.Errorf("plane %s of slots %d to %d does not fit field %s", p.Name, p.From, p.To, field.FullName())
				}
				for j := p.From; j < p.To; j++ {
					if taken[j] {
						return nil, fmt.Errorf("slot %d is in two planes", j)
					}
					taken[j] = true
				}
				f.planes = append(f.planes, planeField{p, field.Number(), single})
			}
		}
		if len(f.planes) != len(d.Planes) {
			return nil, fmt.Errorf("optimizer dump %q has %d fields for %d planes", d.Kind, len(f.planes), len(d.Planes))
		}
		c.dumps = append(c.dumps, f)
	}
	for i := 0; i < l.Slots; i++ {
		if taken[i] {
			continue
		}
		from := i
		for i < l.Slots && !taken[i] {
			i++
		}
		c.rest = append(c.rest, [2]int{from, i})
	}
	return c, nil
}

// CodecOf is the codec of a table that cfg describes.
func CodecOf(cfg table.Config) (*Codec, error) {
	l, fresh := LayoutOf(cfg)
	c, err := NewCodec(l, fresh)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", cfg.Name, err)
	}
	c.Bare = cfg.Serving
	return c, nil
}

// Append encodes r behind b, fields in the order of numbers and floats unpacked, as the
// original does. A row without slots is written without opt where the layout has slots.
func (c *Codec) Append(b []byte, r table.Row) ([]byte, error) {
	if len(r.Values) != c.Dim {
		return b, fmt.Errorf("id %d has %d values where dim is %d", r.ID, len(r.Values), c.Dim)
	}
	slots := len(r.Slots) == c.Slots && !c.Bare
	if !slots && len(r.Slots) != 0 && !c.Bare {
		return b, fmt.Errorf("id %d has %d slots where the optimizer keeps %d", r.ID, len(r.Slots), c.Slots)
	}
	b = appendFloats(appendID(b, r.ID), fieldNum, r.Values)
	if slots {
		var opt []byte
		for i := range c.dumps {
			d := &c.dumps[i]
			single := protowire.AppendTag(nil, d.number, protowire.BytesType)
			single = protowire.AppendBytes(single, d.append(nil, r.Slots))
			opt = protowire.AppendTag(opt, fieldDump, protowire.BytesType)
			opt = protowire.AppendBytes(opt, single)
		}
		b = protowire.AppendTag(b, fieldOpt, protowire.BytesType)
		b = protowire.AppendBytes(b, opt)
	}
	b = protowire.AppendTag(b, fieldTime, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(r.UnixSec))
	if r.Tag != 0 {
		b = protowire.AppendTag(b, fieldTag, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, r.Tag)
	}
	if slots && len(c.rest) > 0 {
		var packed []byte
		for _, part := range c.rest {
			for _, x := range r.Slots[part[0]:part[1]] {
				packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(x))
			}
		}
		b = protowire.AppendTag(b, fieldRest, protowire.BytesType)
		b = protowire.AppendBytes(b, packed)
	}
	return b, nil
}

func (d *dumpFields) append(b []byte, slots []float32) []byte {
	for _, p := range d.planes {
		v := slots[p.From:p.To]
		if p.Integer {
			b = protowire.AppendTag(b, p.number, protowire.VarintType)
			b = protowire.AppendVarint(b, uint64(optim.Int(v)))
		} else {
			b = appendFloats(b, p.number, v)
		}
	}
	return b
}

func appendID(b []byte, id int64) []byte {
	b = protowire.AppendTag(b, fieldID, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, uint64(id))
}

func appendFloats(b []byte, field protowire.Number, v []float32) []byte {
	for _, x := range v {
		b = protowire.AppendTag(b, field, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, math.Float32bits(x))
	}
	return b
}
