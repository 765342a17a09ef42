package archive

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/znode"
)

// A block's payload is a table of strings (subjects, types, sources) and then its
// records, each:
//
//	uvarint  sequence, as the difference to the one before
//	varint   time in ns, as the difference
//	uvarint  subject, type and source, as indexes into the table
//	byte     flags
//	strings  id, correlation, causation, traceparent
//	strings  with flagAsked: by, key, from, proof of who asked
//	string   body: binary protobuf; of an event that did not decode in full, what it was
//
// A string is its uvarint length and its bytes. What did not decode in full is decoded anew
// by each reader: a later build may know it.
const (
	flagBinary = 1 << 0 // it was binary when it was stored, so the body is the original
	flagFailed = 1 << 1 // it did not decode, or not in full: the body is the original
	flagAsked  = 1 << 2 // who asked stands before the body

	flagsKept = flagBinary | flagFailed // the body is the original
)

// encoder builds one block and the original bytes beside it.
type encoder struct {
	records, raw []byte
	table        []string
	index        map[string]uint64
	first, prev  uint64
	began, at    int64
	count        int
}

func (e *encoder) reset() {
	e.records, e.raw, e.table, e.count = e.records[:0], e.raw[:0], e.table[:0], 0
	e.index = map[string]uint64{}
}

func (e *encoder) size() int { return len(e.records) + len(e.raw) }

func (e *encoder) name(s string) uint64 {
	i, ok := e.index[s]
	if !ok {
		i = uint64(len(e.table))
		e.index[s] = i
		e.table = append(e.table, s)
	}
	return i
}

// whole says that nothing of a JSON body was passed over when this build decoded it. Of a
// newer build's event the original is kept, for a later reader that knows all of it.
func whole(r events.Recorded) bool {
	return protojson.Unmarshal(r.Data, r.Event.ProtoReflect().New().Interface()) == nil
}

// add takes the event that follows the one before.
func (e *encoder) add(r events.Recorded) error {
	at := r.Time.UnixNano()
	if e.count == 0 {
		e.first, e.prev, e.began, e.at = r.Seq, r.Seq, at, at
	}
	flags, body := byte(0), r.Data
	if r.Binary {
		flags |= flagBinary
	}
	switch {
	case r.Event == nil || !r.Binary && !whole(r):
		flags |= flagFailed
	case !r.Binary:
		var err error
		if body, err = (proto.MarshalOptions{Deterministic: true}).Marshal(r.Event); err != nil {
			return fmt.Errorf("sequence %d: %w", r.Seq, err)
		}
	}
	if r.Header.Asked != (events.Asked{}) {
		flags |= flagAsked
	}
	b := binary.AppendUvarint(e.records, r.Seq-e.prev)
	b = binary.AppendVarint(b, at-e.at)
	for _, s := range []string{string(r.Subject), r.Header.Type, r.Header.Source} {
		b = binary.AppendUvarint(b, e.name(s))
	}
	b = append(b, flags)
	said := []string{r.Header.ID, r.Header.Correlation, r.Header.Causation, r.Header.Traceparent}
	if a := r.Header.Asked; flags&flagAsked != 0 {
		said = append(said, a.By, a.Key, a.From, a.Proof)
	}
	for _, s := range said {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	b = append(binary.AppendUvarint(b, uint64(len(body))), body...)
	e.records, e.prev, e.at = b, r.Seq, at
	if flags&flagsKept == 0 {
		e.raw = append(binary.AppendUvarint(e.raw, uint64(len(r.Data))), r.Data...)
	}
	e.count++
	return nil
}

// block is the payload of what was added.
func (e *encoder) block() []byte {
	b := binary.AppendUvarint(nil, e.first)
	b = binary.AppendVarint(b, e.began)
	b = binary.AppendUvarint(b, uint64(e.count))
	b = binary.AppendUvarint(b, uint64(len(e.table)))
	for _, s := range e.table {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return append(b, e.records...)
}

// decoder reads a block. Its strings are the block's bytes, which never change.
type decoder struct {
	b   []byte
	at  int
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s at byte %d of a block", ErrDamaged, what, d.at)
	}
}

func (d *decoder) uvarint() uint64 {
	if d.at < len(d.b) {
		if v := d.b[d.at]; v < 0x80 {
			d.at++
			return uint64(v)
		}
	}
	return d.longUvarint()
}

func (d *decoder) longUvarint() uint64 {
	v, n := binary.Uvarint(d.b[d.at:])
	if n <= 0 {
		d.fail("a number is cut short")
		return 0
	}
	d.at += n
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b[d.at:])
	if n <= 0 {
		d.fail("a number is cut short")
		return 0
	}
	d.at += n
	return v
}

// bytes is the next string.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if d.err == nil && n > uint64(len(d.b)-d.at) {
		d.fail("a string is cut short")
	}
	if d.err != nil {
		return nil
	}
	from := d.at
	d.at += int(n)
	return d.b[from:d.at:d.at]
}

func (d *decoder) string() string {
	b := d.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// name is an entry of the table; of a subject, taken apart once.
type name struct {
	text      string
	context   string
	aggregate string
	empty     proto.Message // of the subject's context; nil: it is of none that this build knows
}

// want says whether a reader needs the events of a context decoded.
type want func(context string) bool

// batch is the records of a block, decoded. One that was given back is filled again: the
// records, and what the arena decoded, are overwritten then.
type batch struct {
	records []events.Recorded
	table   []name
	znodes  znode.Arena
}

// decode fills the batch with the block's records from sequence `from` on. Events of
// contexts that are not wanted come as an empty one of their context, which no fold of
// other contexts looks at. raw, unless nil, holds the original bytes. payload and raw
// must never change.
func (t *batch) decode(payload, raw []byte, from uint64, wanted want) error {
	t.records = t.records[:0]
	t.znodes.Reset()
	d, rd := &decoder{b: payload}, &decoder{b: raw}
	seq := d.uvarint()
	at := d.varint()
	count, err := t.names(d)
	if err != nil {
		return err
	}
	t.records = slices.Grow(t.records, count)
	for range count {
		seq += d.uvarint()
		at += d.varint()
		t.records = t.records[:len(t.records)+1]
		r := &t.records[len(t.records)-1]
		on, flags, body := t.record(d, r, seq, at)
		if d.err != nil {
			return d.err
		}
		switch {
		case flags&flagsKept != 0:
			r.Data = body
		case raw != nil:
			if r.Data = rd.bytes(); rd.err != nil {
				return rd.err
			}
		}
		if seq < from {
			t.records = t.records[:len(t.records)-1]
			continue
		}
		if err := t.fill(r, on, flags, body, wanted); err != nil {
			return fmt.Errorf("%w: sequence %d: %w", ErrDamaged, seq, err)
		}
	}
	if d.at != len(d.b) {
		d.fail("bytes are left over")
	}
	return d.err
}

// names reads how many records follow, and the table of strings.
func (t *batch) names(d *decoder) (count int, err error) {
	records, names, size := d.uvarint(), d.uvarint(), uint64(len(d.b))
	if d.err == nil && (records > size || names > size) {
		d.fail("more records than bytes")
	}
	if d.err != nil {
		return 0, d.err
	}
	t.table = slices.Grow(t.table[:0], int(names))[:names]
	for i := range t.table {
		n := name{text: d.string()}
		if p, err := events.Subject(n.text).Parse(); err == nil {
			n.context, n.aggregate = p.Context, p.Aggregate
			n.empty, _ = catalog.New(p.Context)
		}
		t.table[i] = n
	}
	return int(records), nil
}

// absent stands for a name that a damaged block does not list.
var absent name

func (t *batch) entry(d *decoder) *name {
	i := d.uvarint()
	if i >= uint64(len(t.table)) {
		d.fail("a name that the block does not list")
		return &absent
	}
	return &t.table[i]
}

// record reads one record but for its event, which is made of flags and body.
func (t *batch) record(d *decoder, r *events.Recorded, seq uint64, at int64) (on *name, flags byte, body []byte) {
	on, kind, source := t.entry(d), t.entry(d), t.entry(d)
	if d.at >= len(d.b) {
		d.fail("a record is cut short")
	}
	if d.err != nil {
		return on, 0, nil
	}
	flags = d.b[d.at]
	d.at++
	*r = events.Recorded{
		Seq: seq, Subject: events.Subject(on.text), Time: time.Unix(0, at).UTC(), Binary: flags&flagBinary != 0,
		Header: events.Header{Type: kind.text, Source: source.text, ID: d.string(), Correlation: d.string(), Causation: d.string(), Traceparent: d.string()},
	}
	if flags&flagAsked != 0 {
		r.Header.Asked = events.Asked{By: d.string(), Key: d.string(), From: d.string(), Proof: d.string()}
	}
	return on, flags, d.bytes()
}

// fill gives a record its event, or why it has none.
func (t *batch) fill(r *events.Recorded, on *name, flags byte, body []byte, wanted want) (err error) {
	switch {
	case flags&flagFailed != 0:
		if r.Event, r.Err = catalog.Decode(r.Subject, r.Binary, r.Data); r.Err != nil {
			r.Event = nil
		}
	case wanted != nil && !wanted(on.context):
		r.Event = on.empty
	default:
		if r.Event, err = t.event(on, body); err != nil {
			return err
		}
		if err := broken(on, r.Event); err != nil {
			r.Event, r.Err = nil, err
		}
	}
	return nil
}

// broken is why an event that was valid when it was archived is not by the rules of now:
// a follower of the log finds the same, and both must fold the same. Clients' writes are
// not asked, because there are too many of them: their rules are as old as they are.
func broken(on *name, m proto.Message) error {
	if e, ok := m.(*znode.Event); ok && (e.GetProposed() != nil || e.GetPack() != nil) {
		return nil
	}
	v, ok := m.(catalog.Validator)
	if !ok {
		return nil
	}
	return v.Validate(on.aggregate)
}

// event decodes one body.
func (t *batch) event(on *name, body []byte) (proto.Message, error) {
	if on.context == "znode" { // by far the most
		e, err := t.znodes.Unmarshal(body)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
	m, ok := catalog.New(on.context)
	if !ok {
		return nil, fmt.Errorf("%w: %s was decoded by another build and this one does not know its context", events.ErrUnknown, on.text)
	}
	if err := proto.Unmarshal(body, m); err != nil {
		return nil, err
	}
	return m, nil
}
