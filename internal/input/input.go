// Package input reads training records: one pass over a record's bytes finds the fields that
// a declared model names.
//
//	record ── fields found ── sample rules ──► Sample: ids by feature, floats, labels and weights by task ──► runtime.Batch
//
// A [Decoder] belongs to one goroutine and allocates nothing for a record of a kind that it has
// seen, except for one that it refuses: then the error is a sentence for the dead letter.
//
// Bounds. A record's size is bounded by its source alone (a Kafka topic's max.message.bytes), and
// so is its number of fields: n undeclared keys cost n log n comparisons, a declared one a look-up
// in a map. How many ids and samples are taken is [runtime.Batch]'s to say. Between records a decoder
// keeps up to 4,096 keys, 64 KiB of text, 65,536 values and 10 KB for what nests. JSON nests at most
// 10,000 deep and groups of an Example likewise, as encoding/json and protobuf have it.
package input

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input/itempool"
	"github.com/monolith-go/monolith/internal/input/jsontext"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
)

// Options hold a record to more than the model's spec does, as a person would who read it.
type Options struct {
	Format    Format
	Min, Max  float64 // of the first task's label field; equal: any number
	TimeField string  // seconds since 1970 where the record has it; empty: none is looked at
	Serving   bool    // only what a prediction needs is read: labels are 0, samples have no weights, and rules do not apply
	Measure   bool    // rules that go by chance do not apply, nor what they correct
	Lines     bool    // what records say of samples beside the model's fields is kept, see [Line]
}

// What a decoder keeps between records.
const (
	maxKeys   = 4096
	maxText   = 64 << 10
	maxValues = 64 << 10
)

// Decoder reads records of one format for one model.
type Decoder struct {
	spec    *model.ModelSpec
	options Options

	index    map[string]int // declared field by name: where it is in names and found
	names    []string
	plain    []bool   // by name: JSON writes it as it is, and nothing else is read as it
	features []column // by feature of the spec
	floats   []int    // by Float of the spec
	tasks    []task
	time     int // -1: none
	found    []value
	order    []int   // by position in the record before: its declared field, -1 for another
	steady   *steady // nil: records may need more

	sample  runtime.Sample
	ids     []int64   // behind sample; or one by feature
	direct  bool      // nobody asks for sample's ids
	ones    bool      // the sample has one id of each feature, and sample.IDs are not set
	numbers []float32 // likewise

	entries int              // of this message so far, if it is an Example, or of the last that the whole reader took
	items   []item           // what its features list
	open    value            // the feature that is being read
	set     protowire.Number // the field of it that was set last, in Monolith's formats
	text    []byte           // strings of this record that had to be decoded
	strange [][]byte         // its undeclared keys
	json    jsontext.Scanner

	lineAt [lineParts]int // where a Line's parts are found
	lines  []Line         // of the samples of the batch that is filled

	from    Position
	nth     int // sample of the record, from 1
	rules   []rule
	dropped []int   // by rule, of this record
	factor  float64 // by which the sample counts

	pool     *itempool.Pool   // nil: no negatives are made
	drawing  []int            // rules that make some of the sample
	negative runtime.Sample   // one of them
	met      []itempool.Found // items of this record
	noting   bool             // nothing but these is wanted of it

	// Of Monolith's formats.
	labels, weight, line int // where reserved names are found
	parts                []part
	slots                []slot
	bySlots              []int32 // by number of a slot: 1 + where it is in slots
	labelled             []item
	fids                 []uint64 // of an Instance
	cells                []cells  // of an ExampleBatch, by declared field
	elems                [][]byte
}

// column says where the ids of a feature are found, and how they are read.
type column struct {
	at   int // its declared field; -1: it is crossed
	slot uint32
	ids  model.Feature_Ids
}

// task says where what a task learns from is found; -1: nowhere.
type task struct {
	label, weight, mask int
	of                  *model.Label
	told                bool // by a rule, what the sample's label is
	says                float32
}

// New returns a decoder of records for a model whose spec is valid.
func New(spec *model.ModelSpec, o Options) *Decoder {
	d := &Decoder{spec: spec, options: o, index: map[string]int{}, time: -1, factor: 1}
	for _, f := range spec.GetFeatures() {
		at := -1
		if len(f.GetCross()) == 0 {
			at = d.declare(f.GetField())
		}
		d.features = append(d.features, column{at: at, slot: f.GetSlot(), ids: f.GetIds()})
	}
	for _, f := range spec.GetFloats() {
		d.floats = append(d.floats, d.declare(f.GetField()))
	}
	tasks := modelspec.Tasks(spec)
	if len(tasks) == 0 {
		tasks = []*model.Task{{}}
	}
	for _, t := range tasks {
		made := task{label: -1, weight: -1, mask: -1, of: cmp.Or(t.GetLabel(), spec.GetLabel())}
		if !o.Serving {
			for at, field := range map[*int]string{&made.label: made.of.GetField(), &made.weight: t.GetWeightField(), &made.mask: t.GetMaskField()} {
				if field != "" {
					*at = d.declare(field)
				}
			}
		}
		d.tasks = append(d.tasks, made)
	}
	if !o.Serving {
		d.ready(tasks)
	}
	if o.TimeField != "" {
		d.time = d.declare(o.TimeField)
	}
	if o.Lines {
		d.declareLine()
	}
	if o.Format.message() >= MonolithExample {
		d.monolith()
	}
	d.direct = !o.Lines && !slices.ContainsFunc(d.rules, func(r rule) bool { return r.negatives != nil })
	d.found = make([]value, len(d.names))
	d.sample = runtime.Sample{
		IDs: make([][]int64, len(d.features)), Floats: make([][]float32, len(d.floats)),
		Labels: make([]float32, len(d.tasks)), Weights: make([]float32, len(d.tasks)),
	}
	d.readySteady()
	return d
}

// declare returns where a field is found.
func (d *Decoder) declare(field string) int {
	i, ok := d.index[field]
	if !ok {
		i = len(d.names)
		d.index[field], d.names = i, append(d.names, field)
		end, plain := jsontext.StringEnd([]byte(`"`+field+`"`), 0)
		d.plain = append(d.plain, plain && end == len(field)+2)
	}
	return i
}

// find returns where the field at a position of the record is found, -1 if it is not declared.
// Records of one producer are alike, so it tries first what stood there before.
func (d *Decoder) find(pos int, name []byte) int {
	if at, ok := d.expected(pos, name); ok {
		return at
	}
	at, ok := d.index[string(name)]
	if !ok {
		at = -1
	}
	if d.steady != nil {
		d.steady.settled = false
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

// Into adds the samples of a record to a batch, all that the spec's rules leave of them or, with an error,
// none. Unless it is a [runtime.ErrFull], the error is a sentence for the dead letter, with the
// number of the sample, from 1, where a record may hold several.
func (d *Decoder) Into(b *runtime.Batch, record []byte, from Position) error {
	mark := b.Len()
	d.lines = d.lines[:min(mark, len(d.lines))]
	err := d.recordInto(b, record, from)
	if err != nil {
		b.Truncate(mark)
		d.lines = d.lines[:min(mark, len(d.lines))]
		clear(d.dropped)
	} else if d.pool != nil {
		d.pool.Put(from.Offset, d.met, d.declared)
	}
	return err
}

func (d *Decoder) recordInto(b *runtime.Batch, record []byte, from Position) error {
	d.from, d.nth = from, 0
	clear(d.dropped)
	clear(d.met)
	d.met = d.met[:0]
	switch d.options.Format {
	case JSON:
		return d.sampleInto(b, record, d.readJSON)
	case Example:
		return d.sampleInto(b, record, d.readExample)
	}
	return d.monolithInto(b, record)
}

// reset forgets the sample before, and the record that it was in.
func (d *Decoder) reset() {
	if d.options.Format == JSON {
		clear(d.found) // which point into the record
	} else {
		for i := range d.found {
			d.found[i].kind, d.found[i].count = absent, 0
		}
	}
	clear(d.strange) // no record is held by a key of it
	clear(d.items)
	d.text, d.strange, d.items = kept(d.text, maxText), kept(d.strange, maxKeys), kept(d.items, maxValues)
}
