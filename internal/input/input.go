// Package input reads training records: one pass over a record's bytes finds the fields that
// a declared model names.
//
//	record ── Decode ──► Sample: ids by feature, label ── runtime.Batch.Add
//
// A [Decoder] belongs to one goroutine and allocates nothing for a record of a kind that it has
// seen, except for one that it refuses: then the error is a sentence for the dead letter.
//
// Bounds. A record's size is bounded by its source alone (a Kafka topic's max.message.bytes), and
// so is its number of fields: n undeclared keys cost n log n comparisons, a declared one a look-up
// in a map. Between records a decoder keeps up to 4,096 keys, 64 KiB of text and 10 KB for what
// nests. JSON nests at most 10,000 deep and groups of an Example likewise, as encoding/json and
// protobuf have it.
package input

import (
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// Format is how a record is written.
type Format uint8

const (
	JSON    Format = iota // one object, whose members are the fields
	Example               // a tf.train.Example in the protobuf wire format
)

var formats = []string{JSON: "json", Example: "example"}

func (f Format) String() string { return formats[f] }

// ParseFormat finds a format by its name.
func ParseFormat(name string) (Format, error) {
	for f, n := range formats {
		if n == name {
			return Format(f), nil
		}
	}
	return 0, fmt.Errorf("no records have the format %q: give one of %s", name, strings.Join(formats, ", "))
}

// Options hold a record to more than the model's spec does, as a person would who read it.
type Options struct {
	Format    Format
	Min, Max  float64 // of the label's field; equal: any number
	TimeField string  // seconds since 1970 where the record has it; empty: none is looked at
}

// What a decoder keeps between records.
const (
	maxKeys = 4096
	maxText = 64 << 10
)

// Sample is one record as the model reads it.
type Sample struct {
	IDs   []int64 // by feature of the spec, with their slots
	Label float32
}

// Decoder reads records of one format for one model.
type Decoder struct {
	spec    *model.ModelSpec
	options Options

	index   map[string]int // declared field by name: where it is in names and found
	names   []string
	feature []int // by feature of the spec: its declared field
	label   int
	time    int // -1: none
	found   []value
	ids     []int64
	order   []int // by position in the record before: its declared field, -1 for another

	entries int      // of this record so far, if it is an Example
	text    []byte   // strings of this record that had to be decoded
	strange [][]byte // its undeclared keys
	nesting []byte   // the brackets that are open
}

// New returns a decoder of records for a model whose spec is valid.
func New(spec *model.ModelSpec, o Options) *Decoder {
	d := &Decoder{spec: spec, options: o, index: map[string]int{}, time: -1, ids: make([]int64, len(spec.GetFeatures()))}
	for _, f := range spec.GetFeatures() {
		d.feature = append(d.feature, d.declare(f.GetField()))
	}
	d.label = d.declare(spec.GetLabel().GetField())
	if o.TimeField != "" {
		d.time = d.declare(o.TimeField)
	}
	d.found = make([]value, len(d.names))
	return d
}

// declare returns where a field is found.
func (d *Decoder) declare(field string) int {
	i, ok := d.index[field]
	if !ok {
		i = len(d.names)
		d.index[field], d.names = i, append(d.names, field)
	}
	return i
}

// find returns where the field at a position of the record is found, -1 if it is not declared.
// Records of one producer are alike, so it tries first what stood there before.
func (d *Decoder) find(pos int, name []byte) int {
	if pos < len(d.order) {
		if at := d.order[pos]; at >= 0 && d.names[at] == string(name) {
			return at
		}
	}
	at, ok := d.index[string(name)]
	if !ok {
		at = -1
	}
	switch {
	case pos < len(d.order):
		d.order[pos] = at
	case len(d.order) < maxKeys:
		d.order = append(d.order, at)
	}
	return at
}

// kept is s without its content, to be used again unless it has grown beyond most.
func kept[T any](s []T, most int) []T {
	if cap(s) > most {
		return nil
	}
	return s[:0]
}

// Decode reads one record: each feature's field is a whole number of 0 to 2^48-1, the label's
// any number, and both may be written as text. Fields that neither the spec nor the options name
// are passed over. The sample is good until the next call; the error is a sentence for the dead
// letter.
func (d *Decoder) Decode(record []byte) (Sample, error) {
	clear(d.found)
	clear(d.strange) // no record is held by a key of it
	d.text, d.strange = kept(d.text, maxText), kept(d.strange, maxKeys)
	read := d.readJSON
	if d.options.Format == Example {
		read = d.readExample
	}
	if err := read(record); err != nil {
		return Sample{}, err
	}
	for f, at := range d.feature {
		id, err := d.id(at)
		if err != nil {
			return Sample{}, err
		}
		d.ids[f] = modelspec.FID(d.spec.Features[f].GetSlot(), id)
	}
	v, err := d.number(d.label)
	if err != nil {
		return Sample{}, err
	}
	if o := &d.options; o.Min != o.Max && (v < o.Min || v > o.Max) {
		return Sample{}, fmt.Errorf("field %q is %v, outside %v to %v", d.names[d.label], v, o.Min, o.Max)
	}
	if d.time >= 0 && d.found[d.time].kind != absent {
		if err := d.seconds(d.time); err != nil {
			return Sample{}, err
		}
	}
	return Sample{d.ids, modelspec.LabelOf(d.spec, v)}, nil
}
