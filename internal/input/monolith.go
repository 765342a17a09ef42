package input

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/input/pbfield"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/kernels/layout"
)

// part is a declared field that is read out of another one: a label by its number, or a field of
// the LineId.
type part struct {
	at    int
	nth   int
	field lineField
}

// slot is the declared fields that are the ids of a slot of an Instance.
type slot struct {
	number uint32
	at     []int
	ids    int // of the record
}

// cells are a declared feature's elements in an ExampleBatch: one for each sample, or a shared one.
type cells struct {
	first, n int // in the decoder's elems
	shared   bool
	there    bool
}

// monolith prepares the decoder for Monolith's formats.
func (d *Decoder) monolith() {
	d.labels = d.declare(LabelName)
	d.weight, d.line = d.declare(weightName), d.declare(lineName)
	for at, name := range d.names {
		if nth, ok := strings.CutPrefix(name, LabelName+"."); ok {
			if k, err := strconv.Atoi(nth); err == nil && k >= 0 {
				d.parts = append(d.parts, part{at: at, nth: k})
			}
		}
		if of, ok := strings.CutPrefix(name, lineName+"."); ok {
			if f, ok := lineFields[of]; ok {
				d.parts = append(d.parts, part{at: at, field: f})
			}
		}
		for _, prefix := range []string{"fc_slot_", "slot_"} {
			if number, ok := strings.CutPrefix(name, prefix); ok && d.options.Format.message() == Instance {
				if n, err := strconv.ParseUint(number, 10, 32); err == nil && n <= layout.MaxSlotV1 {
					d.slotted(uint32(n), at)
				}
				break
			}
		}
	}
	d.cells = make([]cells, len(d.names))
}

// monolithInto adds the samples of a record of one of Monolith's formats.
func (d *Decoder) monolithInto(b *runtime.Batch, record []byte) error {
	f := d.options.Format
	if len(record) == 0 {
		return errEmpty
	}
	if !f.Framed() {
		return d.messageInto(b, record)
	}
	for n, rest := 1, record; len(rest) > 0; n++ {
		message, more, err := f.framing().Next(rest)
		if err == nil {
			rest = more
			err = d.messageInto(b, message)
		} else {
			err = fmt.Errorf("the record is no stream of %s: message %d: %w", f, n, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) messageInto(b *runtime.Batch, message []byte) error {
	switch d.options.Format.message() {
	case ExampleBatch:
		return d.batchInto(b, message)
	case Instance:
		return d.sampleInto(b, message, d.instance)
	}
	return d.sampleInto(b, message, d.example)
}

// sampleInto adds the sample of a message.
func (d *Decoder) sampleInto(b *runtime.Batch, message []byte, read func([]byte) error) error {
	d.nth++
	if d.steadily(b, message) {
		return nil
	}
	d.reset()
	err := read(message)
	if f := d.options.Format.message(); err != nil && f >= MonolithExample {
		err = fmt.Errorf("it is no message of the format %s: %w", messages[f], err)
	}
	return d.addTo(b, err)
}

// addTo adds the sample that was found, unless a rule drops it or there is an error, which it completes.
func (d *Decoder) addTo(b *runtime.Batch, err error) error {
	learnt := true
	d.drawing = d.drawing[:0]
	if err == nil && len(d.rules) > 0 {
		learnt, err = d.sifts()
	}
	if err == nil && learnt {
		err = d.made()
	}
	if err == nil && learnt {
		d.weigh()
		err = d.add(b)
	}
	if f := d.options.Format; err != nil && (f.Framed() || f.message() == ExampleBatch) {
		err = fmt.Errorf("sample %d: %w", d.nth, err)
	}
	return err
}

// add adds the sample that was made, behind its negatives, and notes its items for the records that come.
func (d *Decoder) add(b *runtime.Batch) error {
	if d.noting {
		b.Reset() // a sample is refused for itself alone
	} else if err := d.negate(b); err != nil {
		return err
	}
	if d.ones {
		return b.AddSingle(d.ids, d.sample.Floats, d.sample.Labels, d.sample.Weights)
	}
	if err := b.Add(d.sample); err != nil {
		return err
	}
	d.note()
	if d.options.Lines && !d.noting {
		d.lines = append(d.lines, d.readLine())
	}
	return nil
}

// The fields of Monolith's messages that are read.
const (
	mExampleFeature = 1
	mExampleLine    = 100
	mExampleLabel   = 101
	mExampleWeight  = 102

	mNamedName    = 1
	mNamedFeature = 2
	mNamedSorted  = 6

	mBatchList   = 1
	mBatchSize   = 3
	mListName    = 1
	mListFeature = 2
	mListType    = 3
	mListShared  = 1

	mInstanceFID     = 1
	mInstanceLabel   = 3
	mInstanceWeight  = 4
	mInstanceLine    = 5
	mInstanceFeature = 9
)

// beside holds what a message says of a sample beside its features.
type beside struct {
	line   []byte
	weight []byte // fixed32
}

// example reads an Example.
func (d *Decoder) example(message []byte) error {
	var other beside
	d.labelled, d.entries = d.labelled[:0], 0
	for b := message; len(b) > 0; {
		if at, list, packed, n := d.usual(d.entries, b); n > 0 && d.oneOfMonolith(at, list, packed) {
			b = b[n:]
			d.entries++
			continue
		}
		num, typ, content, n := pbfield.Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case num == mExampleFeature && typ == protowire.BytesType:
			if err := d.named(d.entries, content); err != nil {
				return err
			}
			d.entries++
		case num == mExampleLine && typ == protowire.BytesType:
			other.line = content // of several parts the last one
		case num == mExampleLabel:
			if err := d.label(typ, content); err != nil {
				return err
			}
		case num == mExampleWeight && typ == protowire.Fixed32Type:
			other.weight = content
		}
	}
	return d.aside(&other)
}

// named reads a NamedFeature.
func (d *Decoder) named(entry int, message []byte) error {
	var name []byte
	sorted := int32(0)
	d.begin(listed)
	for b := message; len(b) > 0; {
		num, typ, content, n := pbfield.Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case num == mNamedName && typ == protowire.BytesType:
			name = content
		case num == mNamedFeature && typ == protowire.BytesType:
			if err := d.monolithFeature(content); err != nil {
				return err
			}
		case num == mNamedSorted && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(content)
			sorted = int32(v)
		}
	}
	switch {
	case !utf8.Valid(name):
		return errKey
	case sorted > 0:
		return layout.SortedIDError(string(name), sorted)
	}
	at := d.find(entry, name)
	if at < 0 {
		d.items = d.items[:d.open.first]
		return nil
	}
	return d.closed(at)
}

// label reads one, or a packed run of them.
func (d *Decoder) label(typ protowire.Type, b []byte) error {
	if typ != protowire.Fixed32Type && typ != protowire.BytesType {
		return nil
	}
	first := len(d.items)
	if err := d.run(monolithFloats, b); err != nil {
		return err
	}
	d.labelled = append(d.labelled, d.items[first:]...)
	d.items = d.items[:first]
	return nil
}

// aside takes what stands beside the features, where no feature of a reserved name does.
func (d *Decoder) aside(other *beside) error {
	if d.found[d.labels].kind == absent && len(d.labelled) > 0 {
		d.begin(float)
		d.items = append(d.items, d.labelled...)
		if err := d.closed(d.labels); err != nil {
			return err
		}
	}
	if d.found[d.weight].kind == absent && other.weight != nil {
		d.begin(float)
		if err := d.scalar(monolithFloat, other.weight); err != nil {
			return err
		}
		if it := d.items[len(d.items)-1]; math.Float64frombits(it.bits) > 0 { // otherwise it was left out
			if err := d.closed(d.weight); err != nil {
				return err
			}
		}
	}
	return d.reserved(other.line)
}

// instance reads an Instance.
func (d *Decoder) instance(message []byte) error {
	var other beside
	d.labelled, d.fids = d.labelled[:0], d.fids[:0]
	for entry, b := 0, message; len(b) > 0; {
		num, typ, content, n := pbfield.Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case num == mInstanceFID && typ == protowire.Fixed64Type, num == mInstanceFID && typ == protowire.BytesType:
			for len(content) > 0 {
				fid, n := protowire.ConsumeFixed64(content)
				if n < 0 {
					return protowire.ParseError(n)
				}
				d.fids, content = append(d.fids, fid), content[n:]
			}
		case num == mInstanceFeature && typ == protowire.BytesType:
			if err := d.instanceFeature(entry, content); err != nil {
				return err
			}
			entry++
		case num == mInstanceLine && typ == protowire.BytesType:
			other.line = content
		case num == mInstanceLabel:
			if err := d.label(typ, content); err != nil {
				return err
			}
		case num == mInstanceWeight && typ == protowire.Fixed32Type:
			other.weight = content
		}
	}
	if err := d.bySlot(); err != nil {
		return err
	}
	return d.aside(&other)
}

// slotted notes a declared field as a slot's.
func (d *Decoder) slotted(number uint32, at int) {
	if d.bySlots == nil {
		d.bySlots = make([]int32, layout.MaxSlotV1+1)
	}
	if d.bySlots[number] == 0 {
		d.slots = append(d.slots, slot{number: number})
		d.bySlots[number] = int32(len(d.slots))
	}
	s := &d.slots[d.bySlots[number]-1]
	s.at = append(s.at, at)
}

// bySlot gives each declared slot its ids, in their order.
func (d *Decoder) bySlot() error {
	if len(d.slots) == 0 {
		return nil
	}
	for i := range d.slots {
		d.slots[i].ids = 0
	}
	mine := d.fids[:0] // of declared slots
	for _, id := range d.fids {
		if at := d.bySlots[layout.SlotV1(id)]; at > 0 {
			d.slots[at-1].ids++
			mine = append(mine, id)
		}
	}
	next := len(d.items)
	d.items = slices.Grow(d.items, len(mine))[:next+len(mine)]
	for i := range d.slots {
		s := &d.slots[i]
		if s.ids == 0 {
			continue
		}
		for _, at := range s.at {
			if d.found[at].kind != absent {
				return fmt.Errorf("feature %q: %w", d.names[at], errTwice)
			}
			d.found[at] = value{kind: fid, first: next, count: s.ids}
		}
		next, s.ids = next+s.ids, next
	}
	for _, id := range mine {
		s := &d.slots[d.bySlots[layout.SlotV1(id)]-1]
		d.items[s.ids] = item{bits: layout.V2FromV1(id)}
		s.ids++
	}
	return nil
}

// The fields of an Instance's Feature after its name, in the order in which the first that holds
// anything counts, and the field of Example's Feature that reads likewise.
var instanceKinds = [...]struct{ num, as protowire.Number }{{2, monolithV2}, {3, monolithFloats}, {4, monolithInts}, {5, monolithBytes}}

// instanceFeature reads one of an Instance's named features.
func (d *Decoder) instanceFeature(entry int, message []byte) error {
	var name []byte
	nested := false
	for b := message; len(b) > 0; {
		num, typ, content, n := pbfield.Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case num == mNamedName && typ == protowire.BytesType:
			name = content
		case num >= 6 && num <= 9 && typ == protowire.BytesType:
			nested = true
		}
	}
	at := d.find(entry, name)
	if at < 0 {
		return nil
	}
	d.begin(listed)
	for _, k := range instanceKinds {
		d.open.kind = monolithKind[k.as]
		for b := message; len(b) > 0; {
			num, typ, content, n := pbfield.Next(b)
			b = b[n:] // it was read before
			if num != k.num {
				continue
			}
			var err error
			switch {
			case typ == monolithItem[k.as]:
				err = d.scalar(k.as, content)
			case typ == protowire.BytesType:
				err = d.run(k.as, content)
			}
			if err != nil {
				return err
			}
		}
		if len(d.items) > d.open.first {
			return d.closed(at)
		}
	}
	if d.open.kind = listed; nested {
		d.open.kind = lists
	}
	return d.closed(at)
}

// batchInto adds the samples of an ExampleBatch.
func (d *Decoder) batchInto(b *runtime.Batch, message []byte) error {
	size, err := d.columns(message)
	if err != nil {
		return fmt.Errorf("the record is no ExampleBatch: %w", err)
	}
	for i := range int(size) {
		d.nth++
		if d.steadyRow(b, i) {
			continue
		}
		d.reset()
		if err := d.addTo(b, d.row(i)); err != nil {
			return err
		}
	}
	return nil
}

// columns finds the elements of the declared features, and says how many samples there are.
func (d *Decoder) columns(message []byte) (size int32, err error) {
	clear(d.cells)
	clear(d.elems)
	d.elems = kept(d.elems, maxValues)
	for entry, b := 0, message; len(b) > 0; {
		num, typ, content, n := pbfield.Next(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case num == mBatchSize && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(content)
			size = int32(v)
		case num == mBatchList && typ == protowire.BytesType:
			if err := d.column(entry, content); err != nil {
				return 0, err
			}
			entry++
		}
	}
	if size < 0 {
		return 0, fmt.Errorf("batch_size is %d", size)
	}
	for at, c := range d.cells {
		if c.there && !c.shared && c.n != int(size) {
			return 0, fmt.Errorf("feature %q has %d elements in a batch of %d; only a SHARED one may differ", d.names[at], c.n, size)
		}
	}
	if d.steady != nil {
		d.steady.only(d.cells)
	}
	return size, nil
}

// column reads a NamedFeatureList.
func (d *Decoder) column(entry int, message []byte) error {
	var name []byte
	c := cells{first: len(d.elems), there: true}
	for b := message; len(b) > 0; {
		num, typ, content, n := pbfield.Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case num == mListName && typ == protowire.BytesType:
			name = content
		case num == mListFeature && typ == protowire.BytesType:
			d.elems = append(d.elems, content)
		case num == mListType && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(content)
			c.shared = int32(v) == mListShared
		}
	}
	if !utf8.Valid(name) {
		return errKey
	}
	at := d.find(entry, name)
	switch {
	case at < 0:
		d.elems = d.elems[:c.first]
		return nil
	case d.cells[at].there:
		return fmt.Errorf("feature %q: %w", name, errTwice)
	}
	c.n = len(d.elems) - c.first
	d.cells[at] = c
	return nil
}

// row finds the fields of one sample of an ExampleBatch.
func (d *Decoder) row(i int) error {
	for at, c := range d.cells {
		if c.shared {
			if c.n == 0 {
				continue // a SHARED list without elements
			}
			if err := d.cell(at, d.elems[c.first]); err != nil {
				return err
			}
		} else if c.there {
			if err := d.cell(at, d.elems[c.first+i]); err != nil {
				return err
			}
		}
	}
	return d.reserved(nil)
}

func (d *Decoder) cell(at int, element []byte) error {
	if list, packed, ok := pbfield.Packed(element); ok && d.oneOfMonolith(at, list, packed) {
		return nil
	}
	d.begin(listed)
	if err := d.monolithFeature(element); err != nil {
		return fmt.Errorf("feature %q: %w", d.names[at], err)
	}
	return d.closed(at)
}
