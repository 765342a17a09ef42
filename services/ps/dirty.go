package ps

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/kernels/table"
)

const (
	chunkBytes = 448 << 10 // of rows or variables in one delta, but for a larger variable; headers stay below 512 KiB
	groupBytes = 8 << 20   // of deltas published in one call
)

// dirtyRows is what one publication holds: a consistent copy of everything touched.
type dirtyRows struct {
	epoch, step uint64
	ranges      []*delta.Range
	rows        []dirtyTable
	dense       []*delta.Variable
	bad         error // why none of it may be published; nil: it may
	trace       string
}

type dirtyTable struct {
	table   string
	dim     int
	ids     []int64 // ascending
	values  []float32
	removed []int64 // ids that do not exist any more
	format  format  // of the values on their way
}

// collectDirty takes what is touched, or nil when that is nothing. Dense variables come along
// when wanted. The rows are those that the ranges made, not later ones.
func (s *state) collectDirty(dense func(applies int) bool) *dirtyRows {
	s.mu.RLock()
	idle := s.unpublished() == 0 && len(s.ranges) == 0 && !s.denseTouched
	s.mu.RUnlock()
	if idle { // so that an idle shard never takes the lock for writing
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &dirtyRows{epoch: s.epoch, step: s.step, ranges: s.ranges, trace: s.trace}
	if s.denseTouched && dense(s.applies) {
		for _, id := range s.bandIDs {
			h.dense = append(h.dense, &delta.Variable{Name: id.name, Shape: s.bands[id].Shape, At: uint32(id.at), Values: floats(s.dense[id].values)})
		}
		s.denseTouched = false
	}
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		rows := take(s.tables[name], s.gone[name], s.kinds[name].compressed)
		if len(rows.ids)+len(rows.removed) > 0 {
			h.rows = append(h.rows, rows)
		}
	}
	s.gone, s.ranges, s.applies, s.trace = map[string]map[int64]struct{}{}, nil, 0, ""
	if len(h.rows) == 0 && len(h.ranges) == 0 && len(h.dense) == 0 {
		return nil
	}
	h.bad = s.finite(h)
	return h
}

// take copies the rows of t that are listed, and those of gone that have come back. The
// others of gone are removed.
// Lookups of a compressed table show something else than what its rows hold.
func take(t *table.Table, gone map[int64]struct{}, compressed bool) dirtyTable {
	removed := t.Touch(slices.Sorted(maps.Keys(gone)))
	ids := t.TakeTouched()
	h := dirtyTable{table: t.Name(), dim: t.Dim(), ids: ids, values: make([]float32, len(ids)*t.Dim()), removed: removed}
	if compressed {
		rows, _ := t.LookupEntries(ids)
		for i := range rows {
			copy(h.values[i*h.dim:(i+1)*h.dim], rows[i].Values)
		}
		return h
	}
	if found, err := t.Lookup(ids, h.values, nil); err != nil || found != len(ids) {
		panic(fmt.Sprintf("ps: table %s lists %d rows and has %d of them: %v", t.Name(), len(ids), found, err))
	}
	return h
}

func floats(v []float32) []byte {
	b := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
	}
	return b
}

// rowDeltas cuts rows into chunks below chunkBytes; the ranges stand on the last one.
func (h *dirtyRows) rowDeltas(f *schema) []*delta.Delta {
	if len(h.rows) == 0 && len(h.ranges) == 0 {
		return nil
	}
	var out []*delta.Delta
	room := 0
	chunk := func(need int) *delta.Delta {
		if len(out) == 0 || room < need {
			out = append(out, h.empty(f))
			room = chunkBytes
		}
		room -= need
		return out[len(out)-1]
	}
	rowsIn := func(d *delta.Delta, r *dirtyTable) *delta.Rows {
		if n := len(d.Rows); n > 0 && d.Rows[n-1].Table == r.table {
			return d.Rows[n-1]
		}
		rows := &delta.Rows{Table: r.table, Dim: uint32(r.dim)}
		rows.Encoding, rows.Scale = r.format.wire()
		d.Rows = append(d.Rows, rows)
		return rows
	}
	for i := range h.rows {
		r := &h.rows[i]
		r.format = f.kinds[r.table].format.fit(r.values)
		size := 8 + r.format.Size(r.dim)
		for at := 0; at < len(r.ids); {
			// The name of the table comes once per chunk; 256 bytes cover it.
			d := chunk(size + 256)
			n := min(len(r.ids)-at, 1+room/size)
			room -= (n - 1) * size
			rows := rowsIn(d, r)
			for _, id := range r.ids[at : at+n] {
				rows.Ids = append(rows.Ids, uint64(id))
			}
			rows.Values = r.format.append(rows.Values, r.values[at*r.dim:(at+n)*r.dim])
			at += n
		}
		for at := 0; at < len(r.removed); {
			d := chunk(8 + 256)
			n := min(len(r.removed)-at, 1+room/8)
			room -= (n - 1) * 8
			rows := rowsIn(d, r)
			for _, id := range r.removed[at : at+n] {
				rows.Removed = append(rows.Removed, uint64(id))
			}
			at += n
		}
	}
	// A range takes some 40 bytes; after a long outage there may be many of them.
	last := chunk(min(40*len(h.ranges), chunkBytes))
	last.Ranges = h.ranges
	return number(out)
}

// denseDeltas cuts the variables into chunks.
func (h *dirtyRows) denseDeltas(f *schema) []*delta.Delta {
	var out []*delta.Delta
	room := 0
	for _, v := range h.dense {
		if size := len(v.Values) + len(v.Name) + 64; len(out) == 0 || room < size {
			out = append(out, h.empty(f))
			room = chunkBytes - size
		} else {
			room -= size
		}
		out[len(out)-1].Dense = append(out[len(out)-1].Dense, v)
	}
	return number(out)
}

func (h *dirtyRows) empty(f *schema) *delta.Delta {
	return &delta.Delta{Job: f.job, Shard: f.shard, Shards: f.shards, Epoch: h.epoch, Step: h.step}
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
