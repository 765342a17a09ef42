package rowwire

import (
	"maps"
	"slices"
)

// Each message is written in the order of its fields. Decoders of requests reuse the
// memory of what they decode into; decoding and encoding again gives the same bytes.

func (r *LookupRequest) encode(e *encoder) {
	e.str(r.Model)
	e.u32(r.Shard)
	e.bool(r.WithSeqs)
	e.u64(r.Turn)
	e.u64(r.Generation)
	e.encoding(r.Encoding)
	e.count(len(r.Tables), MaxTables, "tables")
	ids := 0
	for i := range r.Tables {
		t := &r.Tables[i]
		ids += len(t.IDs)
		e.str(t.Table)
		e.count(len(t.IDs), MaxIDs, "ids")
		e.i64s(t.IDs)
	}
	if ids > MaxIDs {
		e.fail("%d ids, at most %d are allowed in one request: split it", ids, MaxIDs)
	}
	if r.versioned() {
		e.i64(r.Version)
		e.str(r.Job)
	}
}

// versioned says that r can only be sent to a peer of protocol version 3.
func (r *LookupRequest) versioned() bool { return r.Version != 0 || r.Job != "" }

func (r *LookupRequest) decode(d *decoder) error {
	r.Model = d.str(r.Model)
	r.Shard = d.u32()
	r.WithSeqs = d.bool()
	r.Turn = d.u64()
	r.Generation = d.u64()
	r.Encoding = d.encoding()
	r.Tables = reuse(r.Tables[:cap(r.Tables)], d.count(MaxTables, 6, "tables"))
	ids := 0
	for i := range r.Tables {
		t := &r.Tables[i]
		t.Table = d.str(t.Table)
		n := d.count(MaxIDs-ids, 8, "ids")
		ids += n
		t.IDs = d.i64s(t.IDs, n)
	}
	if len(d.b) == 0 {
		r.Version, r.Job = 0, ""
		return d.end()
	}
	r.Version = d.i64()
	r.Job = d.str(r.Job)
	if d.err == nil && !r.versioned() {
		d.fail("version 0 of no job is written by leaving it out")
	}
	return d.end()
}

func (r *LookupResponse) encode(e *encoder) {
	e.i64(r.Version)
	e.u64(r.Step)
	e.count(len(r.Values), MaxTables, "tables")
	e.encoding(r.encoding)
	for i, v := range r.Values {
		rows := len(v)
		if i < len(r.counts) {
			rows = r.counts[i]
		}
		e.rows(r.encoding, v, rows)
	}
	e.count(len(r.Seqs), MaxTables, "tables")
	for _, v := range r.Seqs {
		e.count(len(v), MaxIDs, "sequences")
		e.u64s(v)
	}
}

func (r *LookupResponse) decode(d *decoder) error {
	r.Version = d.i64()
	r.Step = d.u64()
	r.Values = reuse(r.Values[:cap(r.Values)], d.count(MaxTables, 4, "tables"))
	r.encoding = d.encoding()
	r.counts = r.counts[:0]
	for i := range r.Values {
		var n int
		if r.Values[i], n = d.rows(r.encoding, r.Values[i]); r.encoding == Int8 {
			r.counts = append(r.counts, n)
		}
	}
	r.Seqs = reuse(r.Seqs[:cap(r.Seqs)], d.count(MaxTables, 4, "tables"))
	for i := range r.Seqs {
		r.Seqs[i] = get(d, r.Seqs[i], d.count(MaxIDs, 8, "sequences"))
	}
	return d.end()
}

func encodeTensors(e *encoder, ts []NamedTensor) {
	e.count(len(ts), MaxTensors, "variables")
	for i := range ts {
		e.str(ts[i].Name)
		if ts[i].BF16 {
			e.count(0, 0, "values") // they come with the bands
			continue
		}
		e.count(len(ts[i].Values), MaxFrame/4, "values")
		e.f32s(ts[i].Values)
	}
}

func decodeTensors(d *decoder, ts []NamedTensor) []NamedTensor {
	ts = reuse(ts[:cap(ts)], d.count(MaxTensors, 6, "variables"))
	for i := range ts {
		ts[i].Name = d.str(ts[i].Name)
		ts[i].Values = d.f32s(ts[i].Values, d.count(MaxFrame/4, 4, "values"))
	}
	return ts
}

// shapeless says whether n values cannot be rows of ids.
func shapeless(values, ids int) bool {
	return ids == 0 && values > 0 || ids > 0 && values%ids != 0
}

func (r *ApplyRequest) encode(e *encoder) {
	e.str(r.Job)
	e.u32(r.Shard)
	e.u32(uint32(r.Partition))
	e.u64(r.Epoch)
	e.i64(r.From)
	e.i64(r.To)
	e.i64(r.RecordUnix)
	e.u64(r.Turn)
	e.u64(r.Generation)
	e.str(r.Traceparent)
	e.encoding(r.Encoding)
	e.count(len(r.Tables), MaxTables, "tables")
	ids := 0
	for i := range r.Tables {
		t := &r.Tables[i]
		ids += len(t.IDs)
		if shapeless(len(t.Grads), len(t.IDs)) {
			e.fail("table %q: %d gradient values for %d ids are no rows", t.Table, len(t.Grads), len(t.IDs))
		}
		e.str(t.Table)
		e.count(len(t.IDs), MaxIDs, "ids")
		e.i64s(t.IDs)
		e.rows(r.Encoding, t.Grads, len(t.IDs))
	}
	if ids > MaxIDs {
		e.fail("%d ids, at most %d are allowed in one request: split it", ids, MaxIDs)
	}
	encodeTensors(e, r.Dense)
	if r.banded() {
		e.u32(r.Part)
		e.u32(r.Parts)
		encodeBands(e, r.Dense)
	}
}

// banded says that a message can only be sent to a peer of protocol version 4: what makes it
// so is written behind the rest, and left out of other messages.
func (r *ApplyRequest) banded() bool { return r.Part != 0 || r.Parts != 0 || banded(r.Dense) }

func banded(ts []NamedTensor) bool {
	return slices.ContainsFunc(ts, func(t NamedTensor) bool { return t.At != 0 || t.BF16 })
}

func encodeBands(e *encoder, ts []NamedTensor) {
	for i := range ts {
		e.u32(ts[i].At)
		if e.bool(ts[i].BF16); ts[i].BF16 {
			e.count(len(ts[i].Values), MaxFrame/2, "values")
			e.bf16s(ts[i].Values)
		}
	}
}

// decodeBands reads where the tensors begin and what is bfloat16 of them, where that is there.
func decodeBands(d *decoder, ts []NamedTensor, there bool) {
	for i := range ts {
		t := &ts[i]
		if t.At, t.BF16 = 0, false; !there {
			continue
		}
		if t.At, t.BF16 = d.u32(), d.bool(); !t.BF16 {
			continue
		}
		if len(t.Values) > 0 {
			d.fail("variable %q comes both whole and as bfloat16", t.Name)
		}
		t.Values = d.bf16s(t.Values, d.count(MaxFrame/2, 2, "values"))
	}
}

// plain refuses a message that says behind the rest what is said by leaving that out.
func plain(d *decoder, said bool) {
	if d.err == nil && !said {
		d.fail("one part without bands is written by leaving parts and bands out")
	}
}

func (r *ApplyRequest) decode(d *decoder) error {
	r.Job = d.str(r.Job)
	r.Shard = d.u32()
	r.Partition = int32(d.u32())
	r.Epoch = d.u64()
	r.From = d.i64()
	r.To = d.i64()
	r.RecordUnix = d.i64()
	r.Turn = d.u64()
	r.Generation = d.u64()
	r.Traceparent = d.str(r.Traceparent)
	r.Encoding = d.encoding()
	r.Tables = reuse(r.Tables[:cap(r.Tables)], d.count(MaxTables, 14, "tables"))
	ids := 0
	for i := range r.Tables {
		t := &r.Tables[i]
		t.Table = d.str(t.Table)
		n := d.count(MaxIDs-ids, 8, "ids")
		ids += n
		t.IDs = d.i64s(t.IDs, n)
		t.Grads, _ = d.rows(r.Encoding, t.Grads)
		if shapeless(len(t.Grads), len(t.IDs)) {
			d.fail("table %q: %d gradient values for %d ids are no rows", t.Table, len(t.Grads), len(t.IDs))
		}
	}
	r.Dense = decodeTensors(d, r.Dense)
	r.Part, r.Parts = 0, 0
	there := len(d.b) > 0
	if there {
		r.Part, r.Parts = d.u32(), d.u32()
	}
	if decodeBands(d, r.Dense, there); there {
		plain(d, r.banded())
	}
	return d.end()
}

func (r *ApplyResponse) encode(e *encoder) {
	e.bool(r.Applied)
	e.i64(r.Next)
}

func (r *ApplyResponse) decode(d *decoder) error {
	r.Applied = d.bool()
	r.Next = d.i64()
	return d.end()
}

func (r *DenseRequest) encode(e *encoder) {
	e.str(r.Job)
	e.u32(r.Shard)
	e.u64(r.Turn)
	e.u64(r.Generation)
	e.count(len(r.Names), MaxTensors, "variables")
	for _, n := range r.Names {
		e.str(n)
	}
	if len(r.At) > 0 && len(r.At) != len(r.Names) || len(r.BF16) > 0 && len(r.BF16) != len(r.Names) {
		e.fail("%d bands, %d in bfloat16 or not, of %d variables: give each its own", len(r.At), len(r.BF16), len(r.Names))
		return
	}
	if r.banded() {
		for i := range r.Names {
			e.u32(r.BandAt(i))
			e.bool(r.MayRound(i))
		}
	}
}

func (r *DenseRequest) banded() bool {
	return slices.ContainsFunc(r.At, func(at uint32) bool { return at != 0 }) || slices.Contains(r.BF16, true)
}

// BandAt is where the band begins that is meant of the i-th of Names.
func (r *DenseRequest) BandAt(i int) uint32 {
	if i < len(r.At) {
		return r.At[i]
	}
	return 0
}

// MayRound says whether the i-th of Names may come as bfloat16.
func (r *DenseRequest) MayRound(i int) bool { return i < len(r.BF16) && r.BF16[i] }

func (r *DenseRequest) decode(d *decoder) error {
	r.Job = d.str(r.Job)
	r.Shard = d.u32()
	r.Turn = d.u64()
	r.Generation = d.u64()
	r.Names = reuse(r.Names[:cap(r.Names)], d.count(MaxTensors, 2, "variables"))
	for i := range r.Names {
		r.Names[i] = d.str(r.Names[i])
	}
	if r.At, r.BF16 = r.At[:0], r.BF16[:0]; len(d.b) > 0 {
		for range r.Names {
			r.At, r.BF16 = append(r.At, d.u32()), append(r.BF16, d.bool())
		}
		plain(d, r.banded())
	}
	return d.end()
}

func (r *DenseResponse) encode(e *encoder) {
	e.u64(r.Step)
	encodeTensors(e, r.Tensors)
	if r.banded() {
		encodeBands(e, r.Tensors)
	}
}

func (r *DenseResponse) banded() bool { return banded(r.Tensors) }

func (r *DenseResponse) decode(d *decoder) error {
	r.Step = d.u64()
	r.Tensors = decodeTensors(d, r.Tensors)
	there := len(d.b) > 0
	if decodeBands(d, r.Tensors, there); there {
		plain(d, r.banded())
	}
	return d.end()
}

func (r *OffsetsRequest) encode(e *encoder) {
	e.str(r.Job)
	e.u32(r.Shard)
}

func (r *OffsetsRequest) decode(d *decoder) error {
	r.Job = d.str(r.Job)
	r.Shard = d.u32()
	return d.end()
}

func (r *OffsetsResponse) encode(e *encoder) {
	e.u64(r.Epoch)
	e.u64(r.Step)
	e.u64(r.Turn)
	e.u64(r.Generation)
	e.count(len(r.Next), MaxOffsets, "partitions")
	for _, p := range slices.Sorted(maps.Keys(r.Next)) {
		e.u32(uint32(p))
		e.i64(r.Next[p])
	}
}

func (r *OffsetsResponse) decode(d *decoder) error {
	r.Epoch = d.u64()
	r.Step = d.u64()
	r.Turn = d.u64()
	r.Generation = d.u64()
	n := d.count(MaxOffsets, 12, "partitions")
	r.Next = make(map[int32]int64, n)
	last := int32(0)
	for i := range n {
		p := int32(d.u32())
		if i > 0 && p <= last {
			d.fail("partition %d stands behind %d", p, last)
			break
		}
		r.Next[p], last = d.i64(), p
	}
	return d.end()
}

func (r *ScanRequest) encode(e *encoder) {
	e.str(r.Model)
	e.u32(r.Shard)
	e.str(r.Table)
	e.i64(r.After)
	e.u32(r.Limit)
	e.bool(r.Slots)
}

func (r *ScanRequest) decode(d *decoder) error {
	r.Model = d.str(r.Model)
	r.Shard = d.u32()
	r.Table = d.str(r.Table)
	r.After = d.i64()
	r.Limit = d.u32()
	r.Slots = d.bool()
	return d.end()
}

func (r *ScanResponse) encode(e *encoder) {
	e.u32(r.Dim)
	e.bool(r.More)
	e.count(len(r.IDs), MaxIDs, "ids")
	e.i64s(r.IDs)
	e.count(len(r.Values), MaxFrame/4, "values")
	e.f32s(r.Values)
	e.count(len(r.Slots), MaxFrame/4, "slots")
	e.f32s(r.Slots)
	e.count(len(r.UnixSec), MaxIDs, "times")
	e.u32s(r.UnixSec)
	e.count(len(r.Seqs), MaxIDs, "sequences")
	e.u64s(r.Seqs)
}

func (r *ScanResponse) decode(d *decoder) error {
	r.Dim = d.u32()
	r.More = d.bool()
	n := d.count(MaxIDs, 8, "ids")
	r.IDs = d.i64s(nil, n)
	r.Values = d.f32s(nil, d.count(MaxFrame/4, 4, "values"))
	r.Slots = d.f32s(nil, d.count(MaxFrame/4, 4, "slots"))
	if shapeless(len(r.Values), n) || shapeless(len(r.Slots), n) || uint64(len(r.Values)) != uint64(n)*uint64(r.Dim) {
		d.fail("%d values and %d slots for %d ids of dimension %d are no rows", len(r.Values), len(r.Slots), n, r.Dim)
	}
	r.UnixSec = d.u32s(d.count(MaxIDs, 4, "times"))
	r.Seqs = d.u64s(d.count(MaxIDs, 8, "sequences"))
	return d.end()
}

func (x *Error) encode(e *encoder) {
	e.u8(uint8(x.Code))
	e.i64(x.Next)
	e.str(x.Message[:min(len(x.Message), MaxString)])
}

func (x *Error) decode(d *decoder) error {
	x.Code = Code(d.u8())
	x.Next = d.i64()
	x.Message = d.str("")
	return d.end()
}

// hello opens a connection in both directions.
type hello struct {
	Magic    uint32
	Version  uint16
	InFlight uint32 // server: requests it works on at once; client: 0
}

const magic = 0x574f524d // "MROW"

func (h *hello) encode(e *encoder) {
	e.u32(h.Magic)
	e.u16(h.Version)
	e.u32(h.InFlight)
}

func (h *hello) decode(d *decoder) error {
	h.Magic = d.u32()
	h.Version = d.u16()
	h.InFlight = d.u32()
	return d.end()
}
