package publish

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
)

const (
	chunkBytes = 448 << 10 // of rows or variables in one delta, but for a larger variable; headers stay below 512 KiB
	groupBytes = 8 << 20   // of deltas published in one call

	// MaxAssigned bounds the bytes of the values that one assignment sets: its delta is
	// never cut into chunks.
	MaxAssigned = chunkBytes / 2
)

// Writer is the shard that deltas are of.
type Writer struct {
	Job           string
	Shard, Shards uint32
}

// Deltas makes of h what is published on the shard's two subjects, in chunks.
func (w Writer) Deltas(h *Dirty) (rows, variables []*delta.Delta) {
	return w.rowDeltas(h), w.denseDeltas(h)
}

// chunker fills deltas up to chunkBytes, one after the other.
type chunker struct {
	empty func() *delta.Delta
	out   []*delta.Delta
	room  int
}

// take is the delta that has room for need bytes.
func (c *chunker) take(need int) *delta.Delta {
	if len(c.out) == 0 || c.room < need {
		c.out = append(c.out, c.empty())
		c.room = chunkBytes
	}
	c.room -= need
	return c.out[len(c.out)-1]
}

// fill takes for what of n items of size bytes each fits into one delta, behind the table's
// name, which comes once per chunk; 256 bytes cover it.
func (c *chunker) fill(n, size int) (*delta.Delta, int) {
	d := c.take(size + 256)
	n = min(n, 1+c.room/size)
	c.room -= (n - 1) * size
	return d, n
}

// rowDeltas cuts rows into chunks below chunkBytes; the ranges stand on the last one.
func (w Writer) rowDeltas(h *Dirty) []*delta.Delta {
	if len(h.Rows) == 0 && len(h.Ranges) == 0 {
		return nil
	}
	c := chunker{empty: func() *delta.Delta { return w.empty(h) }}
	for i := range h.Rows {
		fit, other := h.Rows[i].whole()
		fit.cut(&c)
		other.cut(&c)
	}
	// A range takes some 40 bytes; after a long outage there may be many of them.
	last := c.take(min(40*len(h.Ranges), chunkBytes))
	last.Ranges = h.Ranges
	return number(c.out)
}

// cut puts r's rows into deltas.
func (r *Rows) cut(c *chunker) {
	for at := 0; at < len(r.IDs); {
		d, n := c.fill(len(r.IDs)-at, 8+r.Format.Size(r.Dim))
		rows := r.in(d)
		for _, id := range r.IDs[at : at+n] {
			rows.Ids = append(rows.Ids, uint64(id))
		}
		rows.Values = r.Format.append(rows.Values, r.Values[at*r.Dim:(at+n)*r.Dim], r.Dim)
		at += n
	}
	for at := 0; at < len(r.Removed); {
		d, n := c.fill(len(r.Removed)-at, 8)
		rows := r.in(d)
		for _, id := range r.Removed[at : at+n] {
			rows.Removed = append(rows.Removed, uint64(id))
		}
		at += n
	}
}

// in is the place of r's rows in d.
func (r *Rows) in(d *delta.Delta) *delta.Rows {
	encoding, scale := r.Format.wire()
	if n := len(d.Rows); n > 0 && d.Rows[n-1].Table == r.Table && d.Rows[n-1].Encoding == encoding {
		return d.Rows[n-1]
	}
	rows := &delta.Rows{Table: r.Table, Dim: uint32(r.Dim), Encoding: encoding, Scale: scale}
	d.Rows = append(d.Rows, rows)
	return rows
}

// denseDeltas cuts the variables into chunks.
func (w Writer) denseDeltas(h *Dirty) []*delta.Delta {
	c := chunker{empty: func() *delta.Delta { return w.empty(h) }}
	for _, v := range h.Dense {
		d := c.take(len(v.Values) + len(v.Name) + 64)
		d.Dense = append(d.Dense, v)
	}
	return number(c.out)
}

func (w Writer) empty(h *Dirty) *delta.Delta {
	return &delta.Delta{Job: w.Job, Shard: w.Shard, Shards: w.Shards, Epoch: h.Epoch, Step: h.Step}
}

func number(ds []*delta.Delta) []*delta.Delta {
	for i, d := range ds {
		d.Chunk, d.Chunks = uint32(i), uint32(len(ds))
	}
	return ds
}

// drafts encodes deltas into groups of one publishing call each. id names the first one
// for ever, so that a repeated call stores nothing twice.
func drafts(subject, id, trace string, ds []*delta.Delta) ([][]bus.DeltaDraft, error) {
	var groups [][]bus.DeltaDraft
	room := 0
	for i, d := range ds {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(d)
		if err != nil {
			return nil, fmt.Errorf("encode delta: %w", err)
		}
		if len(groups) == 0 || room < len(data) {
			groups = append(groups, nil)
			room = groupBytes
		}
		room -= len(data)
		g := &groups[len(groups)-1]
		*g = append(*g, bus.DeltaDraft{Subject: subject, ID: fmt.Sprintf("%s.%d", id, i), Traceparent: trace, Data: data})
	}
	return groups, nil
}
