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
	modelv1 "github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Rows is the parameters of a job or a part of it: what serving holds.
type Rows struct {
	Tables map[string]map[int64][]float32
	Dense  map[string][]float32
	spec   *modelv1.ModelSpec        // how serving keeps rows; nil: whole
	coarse map[string]map[int64]bool // rows that came as serving keeps them
}

// NewRows is empty.
func NewRows() *Rows {
	return &Rows{Tables: map[string]map[int64][]float32{}, Dense: map[string][]float32{}, coarse: map[string]map[int64]bool{}}
}

// AddShard adds all of a checkpoint's or an export's shard.
func (s *Rows) AddShard(shard *checkpoint.Shard) {
	if shard.Spec != nil {
		s.spec = shard.Spec
	}
	for name, rows := range shard.Tables {
		t := s.table(name)
		for _, r := range rows {
			t[r.ID] = r.Values
		}
	}
	for name, v := range shard.Dense {
		s.Dense[name] = v.Values
	}
	for _, b := range shard.Bands {
		s.Dense[bandName(b.Name, b.At)] = b.Values
	}
}

// bandName is what sentences call the band of a variable; the first, or only, one has the
// variable's name.
func bandName(name string, at int) string {
	if at == 0 {
		return name
	}
	return fmt.Sprintf("%s from %d on", name, at)
}

func (s *Rows) table(name string) map[int64][]float32 {
	t := s.Tables[name]
	if t == nil {
		t = map[int64][]float32{}
		s.Tables[name], s.coarse[name] = t, map[int64]bool{}
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
		decode, n := decoder(r)
		if decode == nil || len(r.GetValues()) != n*len(r.GetIds()) {
			return fmt.Errorf("table %s: %d rows of dim %d in encoding %v came with %d bytes", r.GetTable(), len(r.GetIds()), r.GetDim(), r.GetEncoding(), len(r.GetValues()))
		}
		for i, id := range r.GetIds() {
			row := make([]float32, r.GetDim())
			for j := range row {
				row[j] = decode(r.GetValues()[i*n:(i+1)*n], j)
			}
			t[int64(id)] = row
			if delete(s.coarse[r.GetTable()], int64(id)); r.GetEncoding() != delta.Encoding_FP32 {
				s.coarse[r.GetTable()][int64(id)] = true
			}
		}
	}
	for _, v := range d.GetDense() {
		row := make([]float32, len(v.GetValues())/4)
		for j := range row {
			row[j] = whole(v.GetValues()[4*j:])
		}
		s.Dense[bandName(v.GetName(), int(v.GetAt()))] = row
	}
	return nil
}

func whole(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// decoder reads number j of a row of r, which takes so many bytes; nil for an encoding that is not known.
func decoder(r *delta.Rows) (decode func(row []byte, j int) float32, bytes int) {
	dim := int(r.GetDim())
	switch r.GetEncoding() {
	case delta.Encoding_FP32:
		return func(row []byte, j int) float32 { return whole(row[4*j:]) }, 4 * dim
	case delta.Encoding_FP16:
		return func(row []byte, j int) float32 { return fromHalf(binary.LittleEndian.Uint16(row[2*j:])) }, 2 * dim
	case delta.Encoding_INT8:
		return func(row []byte, j int) float32 { return float32(int8(row[j])) * r.GetScale() }, dim
	case delta.Encoding_BITS:
		return func(row []byte, j int) float32 {
			if row[j/8]&(1<<(j%8)) != 0 {
				return r.GetScale()
			}
			return -r.GetScale()
		}, (dim + 7) / 8
	}
	return nil, 0
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
// bit; a row that travelled as serving keeps it must be what serving makes of the truth.
// Variables that got lacks count only with dense set.
func (s *Rows) Diff(got *Rows, dense bool) (sentence string, count int) {
	note := func(format string, args ...any) {
		if count++; count == 1 {
			sentence = fmt.Sprintf(format, args...)
		}
	}
	for _, name := range sortedKeys(s.Tables) {
		have := got.Tables[name]
		kept, err := keptBy(s.spec, name)
		if err != nil {
			note("%v", err)
			continue
		}
		for _, id := range sortedKeys(s.Tables[name]) {
			want := s.Tables[name][id]
			if got.coarse[name][id] {
				want = kept.show(want)
			}
			v, ok := have[id]
			switch i := differs(want, v); {
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
		if i := differs(s.Dense[name], v); i >= 0 {
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
func differs(want, got []float32) int {
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			return i
		}
	}
	return -1
}

// kept is how serving keeps the rows of a table. The zero value keeps them whole.
type kept struct {
	segments []modelspec.Segment
	skipZero bool
}

func keptBy(spec *modelv1.ModelSpec, name string) (kept, error) {
	if spec == nil { // a checkpoint from before they said so
		return kept{}, nil
	}
	t := modelspec.Table(spec, name)
	if t == nil {
		return kept{}, fmt.Errorf("the checkpoint holds table %s, which its model does not declare", name)
	}
	segments, err := modelspec.Segments(t, spec.GetSeed())
	if err != nil {
		return kept{}, fmt.Errorf("table %s: %w", name, err)
	}
	return kept{segments, t.GetSkipZeroEmbedding()}, nil
}

// show is what a lookup answers for a row: there and back through each segment's
// compressor. A row of another length is left as it is, and found to differ.
func (k kept) show(row []float32) []float32 {
	dim := 0
	for _, s := range k.segments {
		dim += s.Dim
	}
	if dim != len(row) {
		return row
	}
	out, at := make([]float32, dim), 0
	for _, s := range k.segments {
		b := make([]byte, s.Compressor.Size(s.Dim))
		s.Compressor.Encode(b, row[at:at+s.Dim])
		s.Compressor.Decode(out[at:at+s.Dim], b)
		at += s.Dim
	}
	return out
}

// mayLack tells whether a replica may have dropped a row: zeros are answered without one.
func (k kept) mayLack(row []float32) bool {
	norm := float32(0)
	for _, x := range row {
		norm += x * x
	}
	return k.skipZero && norm < 0x1p-126
}

// ReadCheckpoint reads every shard of a saved checkpoint below its own directory, or else below others, and verifies
// checksums and what the fact says.
func ReadCheckpoint(others checkpoint.Folders, c *training.Checkpoint) ([]*checkpoint.Shard, error) {
	folders := others.Beside(c.GetDir())
	var shards []*checkpoint.Shard
	for _, f := range c.GetShards() {
		if !filepath.IsLocal(f.GetPath()) {
			return nil, fmt.Errorf("checkpoint %d: the path %q of shard %d leads out of its folder", c.GetId(), f.GetPath(), f.GetShard())
		}
		s, err := folders.ReadShard(f.GetPath(), func(s *checkpoint.Shard) error {
			switch m := s.Manifest; {
			case m.Shard != f.GetShard() || m.Checkpoint != c.GetId():
				return fmt.Errorf("%s holds shard %d of checkpoint %d", f.GetPath(), m.Shard, m.Checkpoint)
			case m.Hash != f.GetHash():
				return fmt.Errorf("the files hash to %s, the fact says %s", m.Hash, f.GetHash())
			case !sameOffsets(m.Offsets, c.GetOffsets()):
				return fmt.Errorf("the files stand at offsets %v, the fact at %v", m.Offsets, c.GetOffsets())
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("checkpoint %d, shard %d: %w", c.GetId(), f.GetShard(), err)
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

// Agree compares every row that a replica serves with what serving makes of the truth: s,
// the rows that the training shards hold. servingShards says which of them the replica must have.
func (s *Rows) Agree(ctx context.Context, r Replica, servingShards int) Check {
	c := Check{Name: "replica " + r.Name + " agrees with the training shards"}
	want, got := NewRows(), NewRows()
	for _, name := range sortedKeys(s.Tables) {
		kept, err := keptBy(s.spec, name)
		if err != nil {
			c.Want, c.Got, c.Detail = "rows as the model declares them", "no answer", err.Error()
			return c
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
		mine := want.table(name)
		for id, v := range s.Tables[name] {
			if modelspec.ShardOf(id, servingShards) != int(r.Shard) {
				continue
			}
			shown := v
			if len(kept.segments) > 0 {
				shown = kept.show(v)
			}
			if _, ok := have[id]; ok || !kept.mayLack(v) && !kept.mayLack(shown) {
				mine[id] = shown
			}
		}
	}
	sentence, n := want.Diff(got, false)
	c.Want, c.Got = fmt.Sprintf("%d rows, 0 differ", want.Len()), fmt.Sprintf("%d rows, %d differ", got.Len(), n)
	c.OK, c.Detail = n == 0, sentence
	return c
}
