package state

import (
	"bytes"
	"math"
	"slices"

	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
	"github.com/monolith-go/monolith/services/ps/publish"
)

const (
	// followersBytes bounds what is kept of a table's rows for comparison; rows beyond it go as soon
	// as they are touched.
	followersBytes = 256 << 20
	// hadBytes is what one of them takes beside its numbers.
	hadBytes = 128
	// comparedAtOnce is how many rows are copied to be compared.
	comparedAtOnce = 256
)

// followers is what they have of the rows of a table that changed since, as far as that is known.
type followers struct {
	tolerance float64 // the share of its length within which a row waits
	rows      map[int64]*had
	bytes     int
	held      int // rows that wait and are not listed by their table any more
}

// had is a row as followers have it, in the table's format as serving keeps it.
type had struct {
	row   []byte
	waits bool
}

func (f *followers) forget(id int64) {
	h := f.rows[id]
	if h == nil {
		return
	}
	if h.waits {
		f.held--
	}
	f.bytes -= len(h.row) + hadBytes
	delete(f.rows, id)
}

// forget drops what is known of rows that change otherwise than by learning. The caller holds mu.
func (s *Shard) forget(name string, ids []int64) {
	if w := s.waiting[name]; w != nil && w.followers != nil {
		for _, id := range ids {
			w.forget(id)
		}
	}
}

// remember keeps what followers have of rows that are about to change: a row that is neither
// listed nor waits was published as it is, or came from a checkpoint that was. The caller holds mu.
func (s *Shard) remember(name string, ids []int64) {
	w := s.waiting[name]
	if w == nil || w.followers == nil || w.bytes >= followersBytes {
		return
	}
	t, kind := s.tables[name], s.kinds[name]
	for block := range slices.Chunk(ids, comparedAtOnce) {
		fresh := slices.DeleteFunc(t.Unlisted(block), func(id int64) bool { return w.rows[id] != nil })
		rows, dim := values(t, kind, fresh), t.Dim()
		for i, id := range fresh {
			if row := rows[i*dim : (i+1)*dim]; w.rows[id] == nil && kind.format.Fits(row) {
				w.rows[id] = &had{row: make([]byte, kind.format.Compressor.Size(dim))}
				kind.format.Encode(w.rows[id].row, row)
				w.bytes += len(w.rows[id].row) + hadBytes
			}
		}
	}
}

// choose takes out of h, whose ids are those that were touched, the rows that need not go or may
// wait; with all of them, those that have waited go, too. Its values are then set.
func (f *followers) choose(h *publish.Rows, t *table.Table, kind tableKind, all bool) {
	ids := h.IDs
	if all && f.held > 0 {
		for id, h := range f.rows {
			if h.waits {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	h.IDs, h.Values = nil, nil
	c := comparison{format: kind.format, now: make([]byte, kind.format.Compressor.Size(h.Dim)), was: make([]float32, h.Dim), is: make([]float32, h.Dim)}
	for block := range slices.Chunk(ids, comparedAtOnce) {
		rows := values(t, kind, block)
		for i, id := range block {
			row, then := rows[i*h.Dim:(i+1)*h.Dim], f.rows[id]
			if then != nil && c.comparable(row) {
				if c.same(then.row, row) {
					f.forget(id)
					continue
				}
				if !all && c.moved(then.row) <= f.tolerance {
					if !then.waits {
						then.waits = true
						f.held++
					}
					continue
				}
			}
			f.forget(id)
			h.IDs, h.Values = append(h.IDs, id), append(h.Values, row...)
		}
	}
}

// comparison is of what a row is now with what followers have of it.
type comparison struct {
	format  publish.Format
	now     []byte
	was, is []float32
}

// comparable says whether followers can have the row in its format; one that is not finite goes,
// and is found out.
func (c *comparison) comparable(row []float32) bool {
	return vec.MaxAbs(row) <= math.MaxFloat32 && c.format.Fits(row)
}

// same says whether followers have the row as it is.
func (c *comparison) same(then []byte, row []float32) bool {
	c.format.Encode(c.now, row)
	return bytes.Equal(c.now, then)
}

// moved is how far the row of the last [comparison.same] is from what followers have, as a share of
// the length of that.
func (c *comparison) moved(then []byte) float64 {
	c.format.Decode(c.was, then)
	c.format.Decode(c.is, c.now)
	vec.Axpy(-1, c.was, c.is)
	if length := vec.Dot(c.was, c.was); length > 0 {
		return math.Sqrt(float64(vec.Dot(c.is, c.is)) / float64(length))
	}
	return math.Inf(1)
}
