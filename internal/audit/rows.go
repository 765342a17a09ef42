package audit

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/ckpt"
	"github.com/monolith-go/monolith/internal/modelspec"
	"github.com/monolith-go/monolith/internal/rowwire"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Rows is the parameters of a job or a part of it: what serving holds.
type Rows struct {
	Tables map[string]map[int64][]float32
	Dense  map[string][]float32
	half   map[string]map[int64]bool // rows that came as fp16
}

// NewRows is empty.
func NewRows() *Rows {
	return &Rows{Tables: map[string]map[int64][]float32{}, Dense: map[string][]float32{}, half: map[string]map[int64]bool{}}
}

// AddShard adds all of a checkpoint's or an export's shard.
func (s *Rows) AddShard(shard *ckpt.Shard) {
	for name, rows := range shard.Tables {
		t := s.table(name)
		for _, r := range rows {
			t[r.ID] = r.Values
		}
	}
	for name, v := range shard.Dense {
		s.Dense[name] = v.Values
	}
}

func (s *Rows) table(name string) map[int64][]float32 {
	t := s.Tables[name]
	if t == nil {
		t = map[int64][]float32{}
		s.Tables[name], s.half[name] = t, map[int64]bool{}
	}
	return t
}

// Fold applies one delta, as a serving replica does.
func (s *Rows) Fold(d *delta.Delta) error {
	for _, r := range d.GetRows() {
		t := s.table(r.GetTable())
		for _, id := range r.GetRemoved() {
			delete(t, int64(id))
		}
		width := 4
		if r.GetEncoding() == delta.Encoding_FP16 {
			width = 2
		}
		n := int(r.GetDim()) * width
		if len(r.GetValues()) != n*len(r.GetIds()) {
			return fmt.Errorf("table %s: %d rows of dim %d came with %d bytes", r.GetTable(), len(r.GetIds()), r.GetDim(), len(r.GetValues()))
		}
		for i, id := range r.GetIds() {
			t[int64(id)] = floats(r.GetValues()[i*n:(i+1)*n], width == 2)
			if width == 2 {
				s.half[r.GetTable()][int64(id)] = true
			} else {
				delete(s.half[r.GetTable()], int64(id))
			}
		}
	}
	for _, v := range d.GetDense() {
		s.Dense[v.GetName()] = floats(v.GetValues(), false)
	}
	return nil
}

func floats(b []byte, half bool) []float32 {
	if half {
		out := make([]float32, len(b)/2)
		for i := range out {
			out[i] = fromHalf(binary.LittleEndian.Uint16(b[2*i:]))
		}
		return out
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// fromHalf is the IEEE 754 binary16 number h, exactly.
func fromHalf(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exp {
	case 0:
		return math.Float32frombits(math.Float32bits(float32(frac)*0x1p-24) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// Len is the number of rows in all tables.
func (s *Rows) Len() int {
	n := 0
	for _, t := range s.Tables {
		n += len(t)
	}
	return n
}

// Diff says where got, folded from deltas, differs from s, the truth: a sentence about
// the first difference and how many there are; "" for none. Values must be equal bit by
// bit; a row that travelled as fp16 must be the truth rounded to that. Variables that
// got lacks count only with dense set.
func (s *Rows) Diff(got *Rows, dense bool) (sentence string, count int) {
	note := func(format string, args ...any) {
		if count++; count == 1 {
			sentence = fmt.Sprintf(format, args...)
		}
	}
	for _, name := range sortedKeys(s.Tables) {
		have := got.Tables[name]
		for _, id := range sortedKeys(s.Tables[name]) {
			want := s.Tables[name][id]
			v, ok := have[id]
			switch i := differs(want, v, got.half[name][id]); {
			case !ok:
				note("row %d of table %s is missing", id, name)
			case i >= 0:
				note("row %d of table %s differs in value %d: %v, the checkpoint has %v", id, name, i, at(v, i), at(want, i))
			}
		}
	}
	for _, name := range sortedKeys(got.Tables) {
		for _, id := range sortedKeys(got.Tables[name]) {
			if _, ok := s.Tables[name][id]; !ok {
				note("row %d of table %s is not in the checkpoint", id, name)
			}
		}
	}
	for _, name := range sortedKeys(s.Dense) {
		v, ok := got.Dense[name]
		if !ok {
			if dense {
				note("variable %s is missing", name)
			}
			continue
		}
		if i := differs(s.Dense[name], v, false); i >= 0 {
			note("variable %s differs in value %d: %v, the checkpoint has %v", name, i, at(v, i), at(s.Dense[name], i))
		}
	}
	return sentence, count
}

func at(v []float32, i int) any {
	if i < len(v) {
		return v[i]
	}
	return "nothing"
}

// differs is the first index where the two differ, -1 if none.
func differs(want, got []float32, half bool) int {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want) || i >= len(got):
			return i
		case math.Float32bits(want[i]) == math.Float32bits(got[i]):
		case half && isRounded(want[i], got[i]):
		default:
			return i
		}
	}
	return -1
}

// isRounded tells whether h is v rounded to the nearest half-precision number; an even
// choice between two is not checked.
func isRounded(v, h float32) bool {
	step := 0x1p-24 // of subnormal halves
	if a := math.Abs(float64(h)); a >= 0x1p-14 {
		_, exp := math.Frexp(a)
		step = math.Ldexp(1, exp-11)
	}
	return math.Abs(float64(v)-float64(h)) <= step/2
}

// ReadCheckpoint reads every shard of a saved checkpoint below dir, or below its own
// directory when dir is empty, and verifies checksums and the hashes in the fact.
func ReadCheckpoint(dir string, c *training.Checkpoint) ([]*ckpt.Shard, error) {
	if dir == "" {
		dir = c.GetDir()
	}
	var shards []*ckpt.Shard
	for _, f := range c.GetShards() {
		if !filepath.IsLocal(f.GetPath()) {
			return nil, fmt.Errorf("checkpoint %d: the path %q of shard %d leads out of its folder", c.GetId(), f.GetPath(), f.GetShard())
		}
		s, err := ckpt.ReadShard(filepath.Join(dir, f.GetPath()))
		if err != nil {
			return nil, fmt.Errorf("checkpoint %d, shard %d: %w", c.GetId(), f.GetShard(), err)
		}
		switch m := s.Manifest; {
		case m.Shard != f.GetShard() || m.Checkpoint != c.GetId():
			return nil, fmt.Errorf("checkpoint %d, shard %d: %s holds shard %d of checkpoint %d", c.GetId(), f.GetShard(), f.GetPath(), m.Shard, m.Checkpoint)
		case m.Hash != f.GetHash():
			return nil, fmt.Errorf("checkpoint %d, shard %d: the files hash to %s, the fact says %s", c.GetId(), f.GetShard(), m.Hash, f.GetHash())
		case !sameOffsets(m.Offsets, c.GetOffsets()):
			return nil, fmt.Errorf("checkpoint %d, shard %d: the files stand at offsets %v, the fact at %v", c.GetId(), f.GetShard(), m.Offsets, c.GetOffsets())
		}
		shards = append(shards, s)
	}
	return shards, nil
}

// sameOffsets takes a partition that is not named as standing at 0.
func sameOffsets(a, b map[int32]int64) bool {
	for p := range a {
		if a[p] != b[p] {
			return false
		}
	}
	for p := range b {
		if a[p] != b[p] {
			return false
		}
	}
	return true
}

// Replica is the public rows port of one serving replica.
type Replica struct {
	Name  string // in sentences
	Model string
	Shard uint32
	Rows  rowwire.Handler
}

// Agree compares every row that a replica serves with the truth: s, the rows that the
// training shards hold. servingShards says which of them the replica must have.
func (s *Rows) Agree(ctx context.Context, r Replica, servingShards int) Check {
	c := Check{Name: "replica " + r.Name + " agrees with the training shards"}
	want, got := NewRows(), NewRows()
	for _, name := range sortedKeys(s.Tables) {
		mine := want.table(name)
		for id, v := range s.Tables[name] {
			if modelspec.ShardOf(id, servingShards) == int(r.Shard) {
				mine[id] = v
			}
		}
		have := got.table(name)
		for after, more := int64(math.MinInt64), true; more; {
			page, err := r.Rows.Scan(ctx, &rowwire.ScanRequest{Model: r.Model, Shard: r.Shard, Table: name, After: after, Limit: 4096})
			if err != nil {
				c.Want, c.Got, c.Detail = fmt.Sprintf("%d rows", want.Len()), "no answer", err.Error()
				return c
			}
			dim := int(page.Dim)
			if len(page.Values) != dim*len(page.IDs) || page.More && len(page.IDs) == 0 {
				c.Want, c.Got, c.Detail = fmt.Sprintf("%d rows", want.Len()), "nonsense", "its answer to a scan contradicts itself"
				return c
			}
			for i, id := range page.IDs {
				have[id] = page.Values[i*dim : (i+1)*dim]
				after = id
			}
			more = page.More
		}
	}
	sentence, n := want.Diff(got, false)
	c.Want, c.Got = fmt.Sprintf("%d rows, 0 differ", want.Len()), fmt.Sprintf("%d rows, %d differ", got.Len(), n)
	c.OK, c.Detail = n == 0, sentence
	return c
}
