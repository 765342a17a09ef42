// Package versions keeps the rows of several versions of one serving table. What neighbours have in common is
// there once, readers take no locks, and versions come and go in any order. adr/ says how.
package versions

import (
	"errors"
	"fmt"
	"github.com/monolith-go/monolith/kernels/table"
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

// Table is the rows of several versions of one serving table, each as if it had a table to itself. What
// two neighbours have in common is there once: the newest version's rows are a table, and each older
// version has a layer that covers what is other in it than in the next newer one. A row is copied to the
// layer of the version before when it is written over; see adr/0001.
//
// Any version may be written, by one goroutine each. Readers take no locks: those of the newest version read
// the table alone, those of an older one its layers down to the table.
type Table struct {
	base    *table.Table
	cfg     table.Config
	stripes [1 << stripeBits]atomic.Uint32 // by id: odd while what a version shows is moved

	mu   sync.RWMutex // writers of all versions, and whoever changes line
	line []*Version   // the oldest first
	old  table.Cell   // scratch of whoever holds mu, as the next two
	new  table.Cell
	next table.Cell
}

const stripeBits = 12

// layer covers the rows of those below it. The lowest is the table of the newest version.
type layer struct {
	rows  atomic.Pointer[table.Table] // nil: none
	most  int                         // rows that it had since it had none; mu guards it
	below atomic.Pointer[layer]       // nil: it is the lowest
}

// A layer's rows have a tag one greater than in a table of their own, so that 0 says that there is none,
// and covered stands for a row that is not there in the version.
const covered = math.MaxUint64

// Version is one of them.
type Version struct {
	set  *Table
	top  atomic.Pointer[layer] // nil: it was dropped
	load *loading              // what is known of its rows until it is whole; nil then
}

// loading is what a version that takes over rows has seen of its own.
type loading struct {
	took bool
	seen []uint64 // a bit for each row number of the table
}

// New is a table that cfg describes, without a version. There are no limits and no admission:
// what a version has is decided elsewhere.
func New(cfg table.Config) (*Table, error) {
	if !cfg.Serving || cfg.Track || cfg.Admitter != nil || cfg.MaxRows != 0 || cfg.MaxBytes != 0 {
		return nil, fmt.Errorf("table %s: versions are of serving tables, without limits, admission and lists of what was written", cfg.Name)
	}
	base, err := table.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Table{base: base, cfg: cfg, old: base.NewCell(), new: base.NewCell(), next: base.NewCell()}, nil
}

// Name is the name given to New.
func (s *Table) Name() string { return s.base.Name() }

// Dim is the number of weights per row.
func (s *Table) Dim() int { return s.base.Dim() }

// Next begins a version that takes over the rows of the newest one. Restore gives it its own, and Whole
// ends that; there is one of these at a time.
func (s *Table) Next() (*Version, error) {
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
func (s *Table) lowest() *layer {
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
		s.eachCovered(cover, func(id int64, c *table.Cell) { _ = s.base.Poke(id, c) })
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
			s.eachCovered(top, func(id int64, c *table.Cell) {
				if !s.isCovered(cover, id, &s.next) {
					_ = s.cover(cover, id, c)
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
func (s *Table) eachCovered(l *layer, f func(id int64, c *table.Cell)) {
	rows := l.rows.Load()
	if rows == nil {
		return
	}
	for part := range table.Parts {
		for _, id := range rows.IDsOf(part, nil) {
			s.isCovered(l, id, &s.new)
			seq := s.stripe(id)
			seq.Add(1)
			f(id, &s.new)
			seq.Add(1)
		}
	}
}

// isCovered gets the row that a layer has of an id, which may be that there is none in its version.
func (s *Table) isCovered(l *layer, id int64, c *table.Cell) bool {
	rows := l.rows.Load()
	if rows == nil || !rows.Peek(id, c) {
		return false
	}
	if c.Has = c.Tag != covered; c.Has {
		c.Tag--
	}
	return true
}

// cover gives a layer a row of an id, or that there is none in its version.
func (s *Table) cover(l *layer, id int64, c *table.Cell) error {
	rows := l.rows.Load()
	if rows == nil {
		cfg := s.cfg
		cfg.Capacity = 0
		var err error
		if rows, err = table.New(cfg); err != nil {
			return err
		}
		l.rows.Store(rows)
	}
	as := *c
	if as.Has = true; c.Has {
		as.Tag++
	} else {
		as.UnixSec, as.Tag = 0, covered
	}
	return rows.Poke(id, &as)
}

// uncover has a layer show what is below it.
func (s *Table) uncover(l *layer, id int64) {
	if rows := l.rows.Load(); rows != nil {
		_ = rows.Poke(id, &table.Cell{})
	}
}

// view gets what a version shows that has this top layer. The caller holds mu.
func (s *Table) view(l *layer, id int64, c *table.Cell) {
	for ; ; l = l.below.Load() {
		if l.below.Load() == nil {
			s.base.Peek(id, c)
			return
		}
		if s.isCovered(l, id, c) {
			return
		}
	}
}

// stripe is that of an id, by the upper bits of a product that spreads neighbours.
func (s *Table) stripe(id int64) *atomic.Uint32 {
	return &s.stripes[uint64(id)*0x9e3779b97f4a7c15>>(64-stripeBits)]
}
