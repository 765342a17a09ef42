package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/vec"
)

// ErrMisfit is an assignment that no shard of this model can have made.
var ErrMisfit = errors.New("it does not fit the model")

// Reread takes back what a delta of an earlier life says: the shard's own ids in it are
// published again, and what it says was set by hand is set again if assigned says so. Rows of
// other shards, which a checkpoint of another number of shards brings along, are taken out of
// d. An error that wraps [ErrMisfit] has set nothing. The shard does not answer yet.
func (s *Shard) Reread(d *delta.Delta, assigned bool) error {
	s.keepOwn(d)
	s.retouch(d)
	if !assigned {
		return nil
	}
	return s.assignAgain(d)
}

// assignAgain sets what d says was set by hand, all of it or, as ErrMisfit, nothing. The
// shard does not answer yet.
func (s *Shard) assignAgain(d *delta.Delta) error {
	a := d.GetAssigned()
	if a == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	type part struct {
		table  string
		ids    []int64
		values []float32
	}
	var parts []part
	for _, r := range d.GetRows() {
		t := s.tables[r.GetTable()]
		if t == nil || int(r.GetDim()) != t.Dim() || r.GetEncoding() != delta.Encoding_FP32 || len(r.GetValues()) != 4*len(r.GetIds())*t.Dim() {
			return fmt.Errorf("assignment %q to table %q: %w", a.GetRequestId(), r.GetTable(), ErrMisfit)
		}
		p := part{r.GetTable(), make([]int64, len(r.GetIds())), make([]float32, len(r.GetValues())/4)}
		for i, id := range r.GetIds() {
			p.ids[i] = int64(id)
		}
		for i := range p.values {
			p.values[i] = math.Float32frombits(binary.LittleEndian.Uint32(r.GetValues()[4*i:]))
		}
		if err := s.checkIDs(p.table, p.ids); err != nil || !(vec.MaxAbs(p.values) <= math.MaxFloat32) {
			return fmt.Errorf("assignment %q to table %q: %w", a.GetRequestId(), r.GetTable(), ErrMisfit)
		}
		parts = append(parts, p)
	}
	at := uint32(min(max(a.GetUnixSec(), 0), math.MaxUint32))
	for _, p := range parts {
		if err := s.set(p.table, p.ids, p.values, at, false); err != nil {
			return fmt.Errorf("assignment %q: %w", a.GetRequestId(), err)
		}
	}
	s.assigned.add(a.GetRequestId())
	return nil
}

// keepOwn removes from d the rows that are another shard's.
func (s *Shard) keepOwn(d *delta.Delta) {
	for _, r := range d.GetRows() {
		if n := len(r.GetIds()); n > 0 {
			width, kept := len(r.GetValues())/n, 0
			for i, id := range r.GetIds() {
				if modelspec.ShardOf(int64(id), int(s.shards)) == int(s.shard) {
					r.Ids[kept] = id
					copy(r.Values[kept*width:(kept+1)*width], r.Values[i*width:(i+1)*width])
					kept++
				}
			}
			r.Ids, r.Values = r.Ids[:kept], r.Values[:kept*width]
		}
		r.Removed = slices.DeleteFunc(r.Removed, func(id uint64) bool {
			return modelspec.ShardOf(int64(id), int(s.shards)) != int(s.shard)
		})
	}
}

// miss has followers drop the rows of ids that have none here when the next publication is
// made. The caller holds mu.
func (s *Shard) miss(table string, ids []int64) {
	if len(ids) == 0 {
		return
	}
	s.forget(table, ids)
	m := s.gone[table]
	if m == nil {
		m = make(map[int64]struct{}, len(ids))
		s.gone[table] = m
	}
	for _, id := range ids {
		m[id] = struct{}{}
	}
}

// retouch marks what deltas of a lost timeline held; unknown tables are passed over.
func (s *Shard) retouch(d *delta.Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range d.GetRows() {
		t := s.tables[r.GetTable()]
		if t == nil {
			continue
		}
		for _, told := range [][]uint64{r.GetIds(), r.GetRemoved()} {
			ids := make([]int64, len(told))
			for i, id := range told {
				ids[i] = int64(id)
			}
			s.miss(r.GetTable(), t.Touch(ids))
		}
	}
}

// TouchAll marks every row.
func (s *Shard) TouchAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.TouchAll()
	}
}
