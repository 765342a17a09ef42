package table

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

var (
	// ErrDropped is wrapped by the error of a call for a version that was dropped.
	ErrDropped = errors.New("the version was dropped")
	// ErrLoading is wrapped by the error of Next while the newest version is not whole.
	ErrLoading = errors.New("the newest version is being read")
)

// Versions are the rows of several versions of one serving table, each as if it had a table to itself. What
// two neighbours have in common is there once: the newest version's rows are a table, and each older
// version has a layer that covers what is other in it than in the next newer one. A row is copied to the
// layer of the version before when it is written over; see adr/0004.
//
// Any version may be written, by one goroutine each. Readers take no locks: those of the newest version read
// the table alone, those of an older one its layers down to the table.
type Versions struct {
	base    *Table
	stripes [1 << stripeBits]atomic.Uint32 // by hash: odd while what a version shows is moved

	mu   sync.RWMutex // writers of all versions, and whoever changes line
	line []*Version   // the oldest first
	old  cell         // scratch of whoever holds mu, as the next two
	new  cell
	next cell
}

const stripeBits = 12

// layer covers the rows of those below it. The lowest is the table of the newest version.
type layer struct {
	rows  atomic.Pointer[Table] // nil: none
	below atomic.Pointer[layer] // nil: it is the lowest
}

// A layer's rows have a tag one greater than in a table of their own, so that 0 says that there is none,
// and covered stands for a row that is not there in the version.
const covered = math.MaxUint64

// Version is one of them.
type Version struct {
	set  *Versions
	top  atomic.Pointer[layer] // nil: it was dropped
	load *loading              // what is known of its rows until it is whole; nil then
}

// loading is what a version that takes over rows has seen of its own.
type loading struct {
	took bool
	seen []uint64 // a bit for each row number of the table
}

// NewVersions is a table that cfg describes, without a version. There are no limits and no admission:
// what a version has is decided elsewhere.
func NewVersions(cfg Config) (*Versions, error) {
	if !cfg.Serving || cfg.Track || cfg.Admitter != nil || cfg.MaxRows != 0 || cfg.MaxBytes != 0 {
		return nil, fmt.Errorf("table %s: versions are of serving tables, without limits, admission and lists of what was written", cfg.Name)
	}
	base, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Versions{base: base, old: base.newCell(), new: base.newCell(), next: base.newCell()}, nil
}

// Name is the name given to NewVersions.
func (s *Versions) Name() string { return s.base.Name() }

// Dim is the number of weights per row.
func (s *Versions) Dim() int { return s.base.Dim() }

// Bytes is the memory that all versions hold together.
func (s *Versions) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	bytes := s.base.Bytes()
	for _, v := range s.line {
		if rows := v.top.Load().rows.Load(); rows != nil && rows != s.base {
			bytes += rows.Bytes()
		}
	}
	return bytes
}

// Next begins a version that takes over the rows of the newest one. Restore gives it its own, and Whole
// ends that; there is one of these at a time.
func (s *Versions) Next() (*Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &Version{set: s, load: &loading{took: s.base.Len() > 0}}
	bottom := s.lowest()
	if n := len(s.line); n > 0 {
		before := s.line[n-1]
		if before.load != nil {
			return nil, fmt.Errorf("table %s: %w: wait until it is whole, or drop it", s.Name(), ErrLoading)
		}
		cover := new(layer)
		cover.below.Store(bottom)
		if n > 1 {
			s.line[n-2].top.Load().below.Store(cover)
		}
		before.top.Store(cover)
	}
	v.top.Store(bottom)
	s.line = append(s.line, v)
	return v, nil
}

// lowest is the table as a layer, each time another one: who finds that a version's top is what it was
// knows that it was the newest one all the while.
func (s *Versions) lowest() *layer {
	l := new(layer)
	l.rows.Store(s.base)
	return l
}

// Drop ends a version. Others show what they did. What only it needed goes; where it was the newest, as one
// that could not be read to its end, the one before it is the newest again. Whether it was the last one.
func (v *Version) Drop() (last bool) {
	s := v.set
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.line, v)
	if i < 0 {
		return false
	}
	top := v.top.Swap(nil)
	v.load = nil
	switch newest := i == len(s.line)-1; {
	case newest && i > 0:
		before := s.line[i-1]
		cover := before.top.Load()
		s.eachCovered(cover, func(hash uint64, c *cell) { _ = s.base.poke(hash, c) })
		bottom := s.lowest()
		if i > 1 {
			s.line[i-2].top.Load().below.Store(bottom)
		}
		before.top.Store(bottom)
	case !newest && i > 0:
		cover := s.line[i-1].top.Load()
		if rows := cover.rows.Load(); rows == nil || rows.Len() == 0 {
			cover.rows.Store(top.rows.Load())
		} else {
			s.eachCovered(top, func(hash uint64, c *cell) {
				if !s.isCovered(cover, hash, &s.next) {
					_ = s.cover(cover, hash, c)
				}
			})
		}
		cover.below.Store(top.below.Load())
	}
	s.line = slices.Delete(s.line, i, i+1)
	return len(s.line) == 0
}

// eachCovered calls f with each row that a layer covers, while readers of its id are kept off. The caller
// holds mu.
func (s *Versions) eachCovered(l *layer, f func(hash uint64, c *cell)) {
	rows := l.rows.Load()
	if rows == nil {
		return
	}
	for i := range rows.shards {
		for _, hash := range rows.hashesOf(&rows.shards[i], nil) {
			s.isCovered(l, hash, &s.new)
			seq := s.stripe(hash)
			seq.Add(1)
			f(hash, &s.new)
			seq.Add(1)
		}
	}
}

// isCovered gets the row that a layer has of hash, which may be that there is none in its version.
func (s *Versions) isCovered(l *layer, hash uint64, c *cell) bool {
	rows := l.rows.Load()
	if rows == nil || !rows.peek(hash, c) {
		return false
	}
	if c.has = c.tag != covered; c.has {
		c.tag--
	}
	return true
}

// cover gives a layer a row of hash, or that there is none in its version.
func (s *Versions) cover(l *layer, hash uint64, c *cell) error {
	rows := l.rows.Load()
	if rows == nil {
		cfg := s.base.cfg
		cfg.Capacity = 0
		var err error
		if rows, err = New(cfg); err != nil {
			return err
		}
		l.rows.Store(rows)
	}
	as := *c
	if as.has = true; c.has {
		as.tag++
	} else {
		as.unixSec, as.tag = 0, covered
	}
	return rows.poke(hash, &as)
}

// uncover has a layer show what is below it.
func (s *Versions) uncover(l *layer, hash uint64) {
	if rows := l.rows.Load(); rows != nil {
		_ = rows.poke(hash, &cell{})
	}
}

// view gets what a version shows that has this top layer. The caller holds mu.
func (s *Versions) view(l *layer, hash uint64, c *cell) {
	for ; ; l = l.below.Load() {
		if l.below.Load() == nil {
			s.base.peek(hash, c)
			return
		}
		if s.isCovered(l, hash, c) {
			return
		}
	}
}

func (s *Versions) stripe(hash uint64) *atomic.Uint32 { return &s.stripes[hash>>(64-stripeBits)] }
