package state

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/entrydump"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/filter"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/ps/publish"
)

const (
	// sweepBuckets is how many buckets of a table one tick looks through, some 6,000
	// rows: under mu, so it bounds how long applies and lookups wait.
	sweepBuckets = 1024
	// sweepEvery is by how many seconds of record time the clock of a table moves on
	// before rows are looked through again. Rows live for days.
	sweepEvery = 3600
)

// tableKind is what is declared of a table, beyond its dim.
type tableKind struct {
	dumps      []checkpoint.Dump // where slots lie in checkpoints
	expires    bool
	expire     table.Expiry
	limits     string         // as declared, in words
	format     publish.Format // of rows in deltas
	compressed bool           // what training looks up is not what followers hear
	stepped    bool           // what training looks up depends on the global step
	interval   time.Duration  // the longest that followers wait for a row; 0: the shard's own
	tolerance  *float32       // how far a row that waits may be from theirs; nil: as far as it gets
}

func newTableKind(spec *model.ModelSpec, t *model.Table) (tableKind, error) {
	cfg, err := modelspec.TableConfig(spec, t.GetName(), false)
	if err != nil {
		return tableKind{}, err
	}
	e, err := modelspec.ExpiryOf(t)
	if err != nil {
		return tableKind{}, fmt.Errorf("table %q: %w", t.GetName(), err)
	}
	k := tableKind{expire: table.Expiry{Days: map[int]uint32{}, DefaultDays: e.Days}, expires: e.Days > 0, limits: limits(t)}
	if s := t.GetSync(); s != nil {
		k.interval, k.tolerance = time.Duration(s.GetIntervalMs())*time.Millisecond, s.Tolerance
	}
	k.format, k.compressed = publish.FormatOf(cfg.Segments, t.GetSkipZeroEmbedding())
	for _, segment := range cfg.Segments {
		_, bits := segment.Compressor.(compress.OneBit)
		k.stepped = k.stepped || bits
	}
	for slot, days := range e.Slots {
		k.expire.Days[int(slot)] = days
		k.expires = k.expires || days > 0
	}
	l, _ := entrydump.LayoutOf(cfg)
	k.dumps = checkpoint.DumpsOf(l.Dumps)
	return k, nil
}

// reached tells all tables of the global step, those too that an apply had no gradients for
// or that come from a checkpoint: what is looked up must depend on nothing else. The caller
// holds mu.
func (s *Shard) reached(step int64) {
	for name, k := range s.kinds {
		if k.stepped {
			if err := s.tables[name].OptimizeAt(nil, nil, 0, table.Rates{GlobalStep: step}); err != nil {
				panic("ps: a table refuses no gradients: " + err.Error())
			}
		}
	}
}

// expiry is how far the rows of one table have been looked through.
type expiry struct {
	clock   uint32 // record time of the table, in seconds: applies alone move it
	swept   uint32 // clock of the round that is under way, or was last
	running bool
}

// room refuses gradients whose new rows are beyond what the tables may hold, before any
// of them is applied. The caller holds mu.
func (s *Shard) room(r *rowwire.ApplyRequest) *rowwire.Error {
	for i := range r.Tables {
		t := &r.Tables[i]
		if err := s.tables[t.Table].Room(t.IDs); err != nil {
			return s.full(t.Table, err)
		}
	}
	return nil
}

// full is the refusal of a table that takes no more rows. The range may be sent again:
// Rows expire, and a model that is declared with more room is served after a restart.
func (s *Shard) full(name string, err error) *rowwire.Error {
	if !errors.Is(err, table.ErrFull) {
		return rowwire.Errorf(rowwire.Invalid, "%w", err)
	}
	return rowwire.Errorf(rowwire.Unavailable, "table %q has reached %s, on shard %d of model %q: declare it with more, with shorter expire or stricter admission, or train with more shards; nothing was applied: %w", name, s.kinds[name].limits, s.shard, s.spec.GetName(), err)
}

// limits are the declared ones in words; the table's own error says which it is.
func limits(t *model.Table) string {
	rows, bytes := fmt.Sprintf("max_rows, %d", t.GetMaxRows()), fmt.Sprintf("max_bytes, %d", t.GetMaxBytes())
	switch {
	case t.GetMaxBytes() == 0:
		return rows
	case t.GetMaxRows() == 0:
		return bytes
	}
	return rows + ", or " + bytes
}

// admission is the admission filter of a table. While it is open, whoever names a row gets it,
// and the filter counts nothing: Shard.mu guards that.
type admission struct {
	filter.Filter
	open bool
}

func (g *admission) Admit(id int64, count uint32) bool { return g.open || g.Filter.Admit(id, count) }

// set assigns values to rows, or adds to them. A missing row gets its first values and
// slots before, whether a filter would have let it in or not: who names a row wants it, and
// a restarted shard that sets it again must come to the same rows. Slots stay. An error
// has changed nothing. The caller holds mu.
func (s *Shard) set(name string, ids []int64, values []float32, unixSec uint32, add bool) error {
	t := s.tables[name]
	if g := s.filters[name]; g != nil {
		g.open = true
		defer func() { g.open = false }()
	}
	s.forget(name, ids)
	do := t.Assign
	if add {
		do = t.AssignAdd
	}
	switch err := do(ids, values, unixSec, 0); {
	case errors.Is(err, table.ErrFull):
		return s.full(name, err)
	case err != nil && !errors.Is(err, table.ErrCrowded): // which leaves ids out, as learn does
		return err
	}
	return nil
}

// recordTime is the time that an apply's rows get, given what its records say: a table's
// clock moves by clockStep at most, so that one record from the future costs no other row
// more than that of its life. The caller holds mu.
func (s *Shard) recordTime(name string, unixSec uint32) uint32 {
	e := s.expiry[name]
	if e == nil || e.clock == 0 || unixSec <= e.clock {
		return unixSec
	}
	return e.clock + min(unixSec-e.clock, s.clockStep)
}

// assignTime is the time that rows set by hand get: that of the newest record, so that
// they live as long as rows of the stream, however far that is behind. The caller holds mu.
func (s *Shard) assignTime(name string, now time.Time) uint32 {
	if e := s.expiry[name]; e != nil && e.clock > 0 {
		return e.clock
	}
	return uint32(now.Unix())
}

// aged moves the clock of a table on. In deterministic mode, whoever moves it past a
// multiple of sweepEvery also removes what has expired by then, in all of the table at
// once: at which record a row goes must not depend on how a process came to where it is.
// The caller holds mu.
func (s *Shard) aged(name string, unixSec uint32) {
	e := s.expiry[name]
	if e == nil || unixSec <= e.clock {
		return
	}
	before := e.clock
	e.clock = unixSec
	if s.deterministic && before/sweepEvery != unixSec/sweepEvery {
		s.expire(name, e.clock, math.MaxInt)
	}
}

// expire removes expired rows from the next buckets of a table, and has followers drop
// them, too. The caller holds mu.
func (s *Shard) expire(name string, now uint32, buckets int) (removed int, done bool) {
	var gone []int64
	removed, done = s.tables[name].ExpireEach(now, s.kinds[name].expire, buckets, func(id int64) { gone = append(gone, id) })
	s.miss(name, gone)
	return removed, done
}

// Sweep takes one bounded step through one table whose clock has moved on, and returns
// how many rows it removed. While a cut holds the shard nothing expires, so that what is
// published before a checkpoint is what the checkpoint holds.
func (s *Shard) Sweep() int {
	if s.deterministic || len(s.expiry) == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil || s.cuts.now != nil {
		return 0
	}
	for _, name := range slices.Sorted(maps.Keys(s.expiry)) {
		e := s.expiry[name]
		if !e.running {
			if e.clock < e.swept || e.clock-e.swept < sweepEvery {
				continue
			}
			e.running, e.swept = true, e.clock
		}
		removed, done := s.expire(name, e.swept, sweepBuckets)
		e.running = !done
		return removed
	}
	return 0
}
