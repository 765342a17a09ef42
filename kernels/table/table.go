// Package table keeps embedding rows by id, without collisions.
//
// A row is Dim weights of one or several segments, the optimizers' slots, the time of its
// last update and a tag of the caller's. A serving table keeps compressed weights alone.
// A reader sees a row before an update or after it, never between, and so does a scan, a
// snapshot and a pooled sum. Which rows exist and what they hold depends on the calls
// made, not on timing: duplicate ids in one call are taken in the order given, and a new
// row's first value is keyed by (seed, table, id).
//
// Ids go through a permutation to 64 shards by its upper bits, each with a lock for
// writers and an index of cache lines that hold six entries: what of the permuted id the
// line's position does not say, and the row's number. Rows, times and tags are arrays by
// number, outside the Go heap where the system allows it. A full shard grows by a
// quarter, a few lines per insertion. Lookups take many ids at a time and no locks, in
// assembly: they ask for lines well before they need them, and look twice at a counter
// that writers keep odd while they are at it. Plain Go under locks is the meaning of
// that, and what runs elsewhere; all backends give the same bits. adr/ says why.
package table

import (
	"errors"
	"fmt"
	"github.com/monolith-go/monolith/kernels/internal/offheap"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/monolith-go/monolith/kernels/optim"
)

const (
	// MaxDim bounds a row.
	MaxDim = 1 << 16
	// MaxGradient bounds each element of a summed gradient: past it, float32 squares
	// no longer add up, so it is refused as infinite ones are.
	MaxGradient = 1e15
	// NoID is the one id that cannot be stored; Rows starts behind it.
	NoID = math.MinInt64
)

// ErrFull is wrapped by the error of a call that would bring a table beyond its limits.
// The call has changed nothing.
var ErrFull = errors.New("the table is full")

// Config describes a table. A row is one segment, of Dim, Optimizer, Initializer and
// Compressor, unless Segments says otherwise. A training table needs an optimizer and an
// initializer for each segment, a serving table a compressor.
type Config struct {
	Name        string // keys the initial values; required
	Dim         int    // weights per row, 1 to MaxDim
	Optimizer   optim.Optimizer
	Initializer Initializer
	Compressor  Compressor // how a serving table keeps weights; in training only Aware ones count
	Segments    []Segment  // instead of the four above
	Seed        uint64

	// Serving tables keep compressed weights only: no optimizer slots, no Optimize.
	Serving bool
	// SkipZero makes a serving table drop the rows that Assign, AssignAdd and Restore
	// would set to (almost) zero: a squared norm below 2^-126.
	SkipZero bool

	// Capacity is how many rows to make room for at once; 0 grows from the smallest.
	Capacity int
	// MaxRows and MaxBytes are limits, 0 none. Bytes are those of the most rows there
	// have been, with times and tags, and of the index; memory is taken from the system
	// in pieces that may be up to 4 MiB ahead of that.
	MaxRows  int
	MaxBytes int64
	// Track lists the rows that Optimize, Assign, AssignAdd and Reinitialize write, for
	// TakeTouched. It takes a byte a row and 16 bytes a row on the list, which no limit
	// counts: a checkpoint of a full table must fit into a table that tracks, too.
	Track bool
	// Admitter is asked before Optimize, Assign, AssignAdd and Reinitialize insert a
	// missing id; nil admits all. Restore does not ask.
	Admitter Admitter
}

// Admitter decides whether an id that has no row deserves one.
type Admitter interface {
	// Admit says so of an id that occurs count times in this call. It is called without
	// any lock and may be called concurrently.
	Admit(id int64, count uint32) bool
}

// Row is a copy of one row.
type Row struct {
	ID      int64
	Values  []float32 // Dim weights, of all segments in order
	Slots   []float32 // the optimizers'; may be empty in Restore: fresh optimizers then
	UnixSec uint32    // time of the last Optimize or Assign
	Tag     uint64    // of the last Assign or Restore; Optimize keeps it
}

// Table is safe for concurrent use.
type Table struct {
	cfg Config
	layout
	key     uint64 // of (seed, name)
	backend backend

	// cut is held for reading by writers of rows and for writing by whoever needs to
	// see no call half done. It comes before any shard's lock.
	cut    sync.RWMutex
	heads  *[shardCount]head
	shards [shardCount]shard

	mem   *offheap.Arena
	rows  *offheap.Region // of rowBytes, padded
	times *offheap.Region // of uint32
	tags  *offheap.Region // of uint64, only as far as there are tags that are not 0
	marks *offheap.Region // of bytes, see mark; nil without Track
	fresh atomic.Uint32   // row numbers from here on have never been used

	size     atomic.Int64  // rows there are
	reserved atomic.Int64  // rows that calls under way may add, where there are limits
	listed   atomic.Int64  // rows that are marked
	form     atomic.Uint64 // changes whenever a row is added or removed
	newest   atomic.Uint32 // the greatest time seen by an update
	step     atomic.Int64  // the greatest global step seen by an update

	sortMu  sync.Mutex // guards the three below
	sorted  []int64    // every id, ascending, as of form == sortedAt; never changed in place
	sortAt  uint64
	pagedAt uint64 // form when a page was last asked for

	sweepMu sync.Mutex // guards sweep; it comes before cut
	sweep   sweep

	buffers sync.Pool // *[]byte
}

// New checks cfg and returns an empty table.
func New(cfg Config) (*Table, error) {
	if cfg.Name == "" {
		return nil, fmt.Errorf("table: no name: the name keys the initial values, give one")
	}
	l, err := newLayout(&cfg)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", cfg.Name, err)
	}
	if err := cfg.checkLimits(); err != nil {
		return nil, fmt.Errorf("table %s: %w", cfg.Name, err)
	}
	t := &Table{cfg: cfg, layout: l, key: tableKey(cfg.Seed, cfg.Name), backend: chosen, mem: &offheap.Arena{}}
	t.heads = new([shardCount]head)
	t.rows = offheap.NewRegion(t.mem, l.stride())
	t.times = offheap.NewRegion(t.mem, 4)
	t.tags = offheap.NewRegion(t.mem, 8)
	if cfg.Track {
		t.marks = offheap.NewRegion(t.mem, 1)
	}
	// A shard's share, and six deviations of what chance adds to it.
	share := float64(cfg.Capacity) / shardCount
	n := uint32((share+6*math.Sqrt(share))/(perBucket*.9)) + 1
	for i := range t.shards {
		s := &t.shards[i]
		s.head, s.num = &t.heads[i], i
		t.reset(s, n)
	}
	t.form.Store(1)
	// Readers may be looking at memory that was dropped, so all of it stays until
	// nobody holds the table.
	runtime.AddCleanup(t, (*offheap.Arena).Release, t.mem)
	return t, nil
}

func (c *Config) checkLimits() error {
	switch {
	case c.Capacity < 0 || c.Capacity > math.MaxInt32:
		return fmt.Errorf("capacity is %d: give 0 to %d rows", c.Capacity, math.MaxInt32)
	case c.MaxRows < 0 || c.MaxBytes < 0:
		return fmt.Errorf("limits of %d rows and %d bytes: give positive ones, or 0 for none", c.MaxRows, c.MaxBytes)
	}
	return nil
}

// Name is the name given to New.
func (t *Table) Name() string { return t.cfg.Name }

// Dim is the number of weights per row, of all segments.
func (t *Table) Dim() int { return t.dim }

// SlotSize is the number of optimizer slots per row, of all segments.
func (t *Table) SlotSize() int { return t.slots }

// Len is the number of rows.
func (t *Table) Len() int { return int(t.size.Load()) }

// Bytes is the memory that the table holds: rows, times, tags and index, rounded up to
// what is allocated.
func (t *Table) Bytes() int64 { return t.mem.Bytes() }

// Remove drops rows and returns how many of them existed.
func (t *Table) Remove(ids []int64) int {
	t.cut.RLock()
	defer t.cut.RUnlock()
	n := 0
	for _, id := range ids {
		hash := hashOf(id)
		s := t.shardOf(hash)
		s.mu.Lock()
		if t.removeRow(s, hash) {
			n++
		}
		s.mu.Unlock()
	}
	return n
}

// removeRow drops one row. The caller holds the lock of s.
func (t *Table) removeRow(s *shard, hash uint64) bool {
	t.untouch(s, hash)
	s.begin()
	s.reform()
	ok := s.remove(hash)
	s.reformed()
	s.finish()
	if ok { // under the lock, so that size and form follow the shards
		t.size.Add(-1)
		t.form.Add(1)
	}
	return ok
}

// Clear drops every row. The memory goes back to the system.
func (t *Table) Clear() {
	t.cut.Lock()
	defer t.cut.Unlock()
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begin()
		defer s.finish()
		s.reform()
		defer s.reformed()
		t.reset(s, 1)
	}
	t.rows.Clear()
	t.times.Clear()
	t.tags.Clear()
	if t.marks != nil {
		t.marks.Clear()
	}
	t.listed.Store(0)
	t.fresh.Store(0)
	t.size.Store(0)
	t.form.Add(1)
}

func (t *Table) shardOf(hash uint64) *shard { return &t.shards[hash>>(64-shardBits)] }

// newRow takes a number for a row of s: one that a removed row left, or the next of a
// run that s has to itself. The caller holds the lock of s.
func (t *Table) newRow(s *shard) (row uint32, ok bool) {
	if n := len(s.free); n > 0 {
		row := s.free[n-1]
		s.free = s.free[:n-1]
		t.setTag(row, 0)
		return row, true
	}
	if s.fresh == s.end {
		// Runs grow with the shard, so that a small table stays small.
		n := uint32(min(max(s.used/8, 4), 64))
		if t.fresh.Load() > math.MaxUint32-shardCount*64 { // runs of all shards at once still fit
			return 0, false
		}
		s.end = t.fresh.Add(n)
		s.fresh = s.end - n
		t.times.Ensure(s.end - 1)
		t.rows.Ensure(s.end - 1)
		if t.marks != nil {
			t.marks.Ensure(s.end - 1)
		}
	}
	s.fresh++
	return s.fresh - 1, true
}

// values and slotsOf are the two parts of a training row.
func (t *Table) values(row uint32) []float32 {
	return unsafe.Slice((*float32)(t.rows.At(row)), t.dim)
}

func (t *Table) slotsOf(row uint32) []float32 {
	if t.slots == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Add(t.rows.At(row), t.valueBytes)), t.slots)
}

// stored are the bytes of the weights of a row.
func (t *Table) stored(row uint32) []byte {
	return unsafe.Slice((*byte)(t.rows.At(row)), t.valueBytes)
}

func (t *Table) time(row uint32) *uint32 { return (*uint32)(t.times.At(row)) }

// tag is read without the lock too, by lookups that compare seq afterwards.
func (t *Table) tag(row uint32) uint64 {
	if int(row>>t.tags.Shift()) >= len(t.tags.Chunks()) {
		return 0
	}
	return atomic.LoadUint64((*uint64)(t.tags.At(row)))
}

func (t *Table) setTag(row uint32, tag uint64) {
	if int(row>>t.tags.Shift()) >= len(t.tags.Chunks()) {
		if tag == 0 {
			return
		}
		t.tags.Ensure(row)
	}
	atomic.StoreUint64((*uint64)(t.tags.At(row)), tag)
}

// readTags reads the tags of slots that are up to date; the others are asked for again.
func (t *Table) readTags(slots []slot, tags []uint64) {
	for i := range slots {
		s := &slots[i]
		tags[i] = 0
		if s.at != 0 && atomic.LoadUint32(s.now) == s.then {
			tags[i] = t.tag(uint32(s.key))
		}
	}
}

func (t *Table) buffer(n int) *[]byte {
	b, _ := t.buffers.Get().(*[]byte)
	if b == nil || cap(*b) < n {
		// Of words, so that a row's floats are aligned.
		words := make([]uint64, (n+7)/8)
		s := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
		b = &s
	}
	*b = (*b)[:n]
	return b
}

// notFinite is the position of the first NaN or infinite element, -1 without one.
func notFinite(x []float32) int {
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}
