// Package rows is the embedding rows of a model server: the tables of one serving shard
// and the row protocol that answers from them, the deltas that keep a servable current,
// and the look-ups by which an entry gets the rows of all shards.
package rows

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/versions"
)

const (
	maxScan   = 4096                 // rows of one Scan answer
	maxFloats = rowwire.MaxFrame / 8 // of one table in one Lookup answer
)

// Shard is one serving shard: the embedding rows whose feature id falls on it. Rows
// remember the sync sequence that wrote them, 0 for those of the export. One goroutine
// writes, any number read. What other versions of it have in common with it is there once.
type Shard struct {
	// Model, Version and Job name the export: the version that it answers as, and the
	// job that made it. Shard is its number of so many Shards, over which ids are spread.
	// They are fixed before it serves.
	Model   string
	Version int64
	Job     string
	Shard   int
	Shards  int
	// Shared is what it has in common with other versions of the shard; nil: there is none.
	Shared *Tables
	// Unfit is told of rows of deltas that are not finite, with the first's id; nil: nobody is.
	Unfit func(table string, rows int, id int64)

	tables   map[string]*versions.Version
	order    []string      // names of the tables, sorted
	followed atomic.Bool   // deltas are written over the rows
	step     atomic.Uint64 // of the newest delta
	asked    atomic.Int64  // when an entry last asked for this version, Unix nanoseconds

	ids    []int64 // the writer's scratch
	values []float32
}

// has adds a table.
func (m *Shard) has(t *versions.Version) {
	if m.tables == nil {
		m.tables = map[string]*versions.Version{}
	}
	m.tables[t.Name()] = t
	at, _ := slices.BinarySearch(m.order, t.Name())
	m.order = slices.Insert(m.order, at, t.Name())
}

// Add restores exported rows into a table that was declared, those alone that are m's, and says how many
// were left out because they are not finite.
func (m *Shard) Add(name string, exported []table.Row) (dropped int, err error) {
	t := m.tables[name]
	exported = slices.DeleteFunc(exported, func(r table.Row) bool { return !m.mine(r.ID) })
	for i := range exported {
		exported[i].Slots, exported[i].Tag = nil, 0
	}
	all := len(exported)
	exported = slices.DeleteFunc(exported, func(r table.Row) bool { return !finite(r.Values) })
	return all - len(exported), t.Restore(exported)
}

// Reached notes the step of an exported shard that was added.
func (m *Shard) Reached(step uint64) { m.step.Store(max(m.step.Load(), step)) }

// Ask notes that an entry asks for this very version.
func (m *Shard) Ask(now time.Time) { m.asked.Store(now.UnixNano()) }

// LastAsked is when an entry last asked for this very version.
func (m *Shard) LastAsked() time.Time { return time.Unix(0, m.asked.Load()) }

func (m *Shard) mine(id int64) bool { return modelspec.ShardOf(id, m.Shards) == m.Shard }

// Apply takes the rows of d that are this shard's. A table that the export does not
// have, or rows that contradict themselves, leave the rest of d applied.
func (m *Shard) Apply(d *delta.Delta, seq uint64, unixSec uint32) error {
	var first error
	for _, r := range d.GetRows() {
		if err := m.applyRows(r, seq, unixSec); err != nil && first == nil {
			first = err
		}
	}
	m.step.Store(d.GetStep())
	return first
}

func (m *Shard) applyRows(r *delta.Rows, seq uint64, unixSec uint32) error {
	t := m.tables[r.GetTable()]
	if t == nil {
		return fmt.Errorf("table %q is not in the export that is served; export the model again", r.GetTable())
	}
	dim := int(r.GetDim())
	if dim != t.Dim() {
		return fmt.Errorf("table %s: rows have dim %d, the export %d", t.Name(), dim, t.Dim())
	}
	size, known := sizeOf(r.GetEncoding(), dim)
	if !known {
		return fmt.Errorf("table %s: unknown encoding %d of values; a newer model server knows it", t.Name(), r.GetEncoding())
	}
	if len(r.GetValues()) != len(r.GetIds())*size {
		return fmt.Errorf("table %s: %d rows of dim %d came with %d bytes of values", t.Name(), len(r.GetIds()), dim, len(r.GetValues()))
	}
	m.ids = m.ids[:0]
	for _, id := range r.GetRemoved() {
		if m.mine(int64(id)) {
			m.ids = append(m.ids, int64(id))
		}
	}
	if len(m.ids) > 0 {
		t.Remove(m.ids)
	}
	m.ids, m.values = m.ids[:0], m.values[:0]
	broken, firstBroken := 0, int64(0)
	for i, id := range r.GetIds() {
		if !m.mine(int64(id)) {
			continue
		}
		at := len(m.values)
		m.values = slices.Grow(m.values, dim)[:at+dim]
		decode(m.values[at:], r.GetValues()[i*size:(i+1)*size], r.GetEncoding(), r.GetScale())
		if !finite(m.values[at:]) { // the row stays as it is; the others need not
			if m.values = m.values[:at]; broken == 0 {
				firstBroken = int64(id)
			}
			broken++
			continue
		}
		m.ids = append(m.ids, int64(id))
	}
	if broken > 0 && m.Unfit != nil {
		m.Unfit(t.Name(), broken, firstBroken)
	}
	return t.Assign(m.ids, m.values, unixSec, seq)
}

// finite says whether v holds numbers alone.
func finite(v []float32) bool {
	for _, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return false
		}
	}
	return true
}

// sizeOf is the number of bytes of a row of dim numbers; false where that is not known.
func sizeOf(e delta.Encoding, dim int) (int, bool) {
	switch e {
	case delta.Encoding_FP32:
		return 4 * dim, true
	case delta.Encoding_FP16:
		return 2 * dim, true
	case delta.Encoding_INT8:
		return dim, true
	case delta.Encoding_BITS:
		return (dim + 7) / 8, true
	}
	return 0, false
}

// decode reads a row of an encoding that is known; b is as long as sizeOf says.
func decode(row []float32, b []byte, e delta.Encoding, scale float32) {
	switch e {
	case delta.Encoding_BITS:
		for i := range row {
			if row[i] = -scale; b[i/8]>>(i%8)&1 == 1 {
				row[i] = scale
			}
		}
	case delta.Encoding_INT8:
		for i, q := range b {
			row[i] = float32(int8(q)) * scale
		}
	case delta.Encoding_FP16:
		compress.FP16{}.Decode(row, b)
	default:
		compress.FP32{}.Decode(row, b)
	}
}

// lookup answers r from the tables into the memory of out; an id of another shard is
// refused, because zeros for it would be a wrong answer that looks like a right one.
func (m *Shard) lookup(r *rowwire.LookupRequest, out *rowwire.LookupResponse) error {
	out.Fill(r)
	out.Version, out.Step = m.Version, m.step.Load()
	for i := range r.Tables {
		q := &r.Tables[i]
		t := m.tables[q.Table]
		if t == nil {
			return rowwire.Errorf(rowwire.NotFound, "model %s has no table %q", m.Model, q.Table)
		}
		if len(q.IDs)*t.Dim() > maxFloats {
			return rowwire.Errorf(rowwire.Invalid, "%d rows of dim %d do not fit one answer; ask for fewer", len(q.IDs), t.Dim())
		}
		for _, id := range q.IDs {
			if !m.mine(id) {
				return rowwire.Errorf(rowwire.Invalid, "id %d belongs to shard %d of %d, not to %d", id, modelspec.ShardOf(id, m.Shards), m.Shards, m.Shard)
			}
		}
		if _, err := t.Lookup(q.IDs, out.ValuesOf(i, len(q.IDs)*t.Dim()), out.SeqsOf(i, len(q.IDs))); err != nil {
			if errors.Is(err, versions.ErrDropped) {
				return rowwire.Errorf(rowwire.NotFound, "%w: version %d of %s:ps_%d", err, m.Version, m.Model, m.Shard)
			}
			return rowwire.Errorf(rowwire.Invalid, "%w", err)
		}
	}
	return nil
}

func (m *Shard) scan(r *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
	t := m.tables[r.Table]
	if t == nil {
		return nil, rowwire.Errorf(rowwire.NotFound, "model %s has no table %q", m.Model, r.Table)
	}
	limit := min(maxScan, rowwire.MaxFrame/8/(t.Dim()+8))
	if r.Limit > 0 {
		limit = min(limit, int(r.Limit))
	}
	rows, more, err := t.Rows(r.After, limit)
	if err != nil {
		return nil, rowwire.Errorf(rowwire.NotFound, "%w", err)
	}
	out := &rowwire.ScanResponse{
		Dim: uint32(t.Dim()), More: more,
		IDs: make([]int64, len(rows)), Values: make([]float32, 0, len(rows)*t.Dim()),
		UnixSec: make([]uint32, len(rows)), Seqs: make([]uint64, len(rows)),
	}
	for i, row := range rows {
		out.IDs[i], out.UnixSec[i], out.Seqs[i] = row.ID, row.UnixSec, row.Tag
		out.Values = append(out.Values, row.Values...)
	}
	return out, nil
}
