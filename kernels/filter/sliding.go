package filter

import (
	"encoding/binary"
	"fmt"
	"sync"
)

const (
	maxCount  = 15 // what four bits count to
	maxProbe  = 16 // cells looked at per split
	ahead     = 2  // splits looked at for a cell to write: the head and the next
	minCells  = 300
	minSplits = 5
	// MaxSlidingCapacity bounds a SlidingCounter: 4 Gi ids take about 12 GB.
	MaxSlidingCapacity = 1 << 32
)

// SlidingConfig describes a SlidingCounter.
type SlidingConfig struct {
	// Capacity is about how many of the latest ids are remembered; the original's is
	// 300,000,000. From 300 to MaxSlidingCapacity.
	Capacity uint64
	// Splits is into how many parts memory is cut: the oldest of them is forgotten at
	// once. From 5 to 64; the original's is 7.
	Splits int
	// Thresholds are at most 15, which is how far a cell counts.
	Thresholds Thresholds
}

// SlidingCounter counts occurrences of the latest ids in about 2.8 bytes per id of
// capacity, allocated as they come.
//
// Cells of 12 bits of signature and 4 of count lie in a ring of splits. An id is counted
// in the head of the ring, with what the splits behind it remember of it; when the head
// is full, the next split takes its place and the oldest is forgotten. An id that was
// never seen is taken for a seen one with probability at most Splits*16/4096 (2.7 % of
// 7), about a third of that in practice. Where no cell is free, the id is let in.
//
// The ring exists once per stripe, a part of the ids chosen by hash, each under its own
// lock. What is decided depends on the order of calls alone.
type SlidingCounter struct {
	cfg     SlidingConfig
	full    int // elements of a split that move the head
	cells   int // per split
	stripes []stripe
}

type stripe struct {
	mu       sync.Mutex
	splits   [][]uint16 // a split without cells has never been written
	elements []int      // cells in use
	head     int
	behind   int // splits behind the head that remember something
	failures uint64
}

// NewSlidingCounter refuses sizes and thresholds out of range.
func NewSlidingCounter(cfg SlidingConfig) (*SlidingCounter, error) {
	switch {
	case cfg.Capacity < minCells || cfg.Capacity > MaxSlidingCapacity:
		return nil, fmt.Errorf("filter: a sliding counter of %d ids: give %d to %d", cfg.Capacity, minCells, MaxSlidingCapacity)
	case cfg.Splits < minSplits || cfg.Splits > 64:
		return nil, fmt.Errorf("filter: a sliding counter of %d splits: give %d to 64", cfg.Splits, minSplits)
	}
	var err error
	if cfg.Thresholds, err = cfg.Thresholds.check(maxCount, "a sliding counter counts to 15"); err != nil {
		return nil, err
	}
	stripes := 1
	for stripes < 64 && cfg.Capacity/uint64(2*stripes) >= 4096 {
		stripes *= 2
	}
	full := int(cfg.Capacity) / stripes / (cfg.Splits - 1)
	f := &SlidingCounter{cfg: cfg, full: max(full, 2), cells: full*6/5 + 64, stripes: make([]stripe, stripes)}
	for i := range f.stripes {
		f.stripes[i].splits = make([][]uint16, cfg.Splits)
		f.stripes[i].elements = make([]int, cfg.Splits)
	}
	return f, nil
}

// Admit reports whether id had occurred its threshold's number of times before.
func (f *SlidingCounter) Admit(id int64, count uint32) bool {
	threshold := f.cfg.Thresholds.Of(id)
	if threshold == 0 {
		return true
	}
	h := mix(uint64(id) + golden)
	s := &f.stripes[h>>12&uint64(len(f.stripes)-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.count(s, uint16(h&0xfff), int(h>>32*uint64(f.cells)>>32), count) >= threshold
}

// count adds n and returns what was counted before. The caller holds the stripe.
func (f *SlidingCounter) count(s *stripe, tag uint16, at int, n uint32) uint32 {
	split, cell := -1, 0
	for i := range ahead {
		k := (s.head + i) % f.cfg.Splits
		c, hit := probe(s.splits[k], tag, at)
		if hit {
			old := uint32(s.splits[k][c] & 15)
			s.splits[k][c] = tag<<4 | uint16(min(uint64(old)+uint64(n), maxCount))
			return old
		}
		if split < 0 && c >= 0 {
			split, cell = k, c
		}
	}
	var old uint32
	for i := 1; i <= s.behind; i++ {
		k := (s.head - i + f.cfg.Splits) % f.cfg.Splits
		if c, hit := probe(s.splits[k], tag, at); hit {
			old = uint32(s.splits[k][c] & 15)
			break
		}
	}
	if n == 0 {
		return old
	}
	if split < 0 {
		s.failures++
		return maxCount
	}
	if s.splits[split] == nil {
		s.splits[split] = make([]uint16, f.cells)
	}
	s.splits[split][cell] = tag<<4 | uint16(min(uint64(old)+uint64(n), maxCount))
	s.elements[split]++
	if s.elements[s.head] >= f.full {
		s.advance(f.cfg.Splits)
	}
	return old
}

// advance makes the next split the head and empties the one after it, which is the
// oldest.
func (s *stripe) advance(splits int) {
	s.head = (s.head + 1) % splits
	s.behind = min(s.behind+1, splits-ahead)
	next := (s.head + 1) % splits
	clear(s.splits[next])
	s.elements[next] = 0
}

// probe returns the cell of tag and true, or the first empty cell, or -1 where all are
// taken. A split without cells is empty everywhere.
func probe(cells []uint16, tag uint16, at int) (int, bool) {
	if cells == nil {
		return at, false
	}
	for range maxProbe {
		switch c := cells[at]; {
		case c == 0:
			return at, false
		case c>>4 == tag:
			return at, true
		}
		if at++; at == len(cells) {
			at = 0
		}
	}
	return -1, false
}

// SlidingStats says how full a SlidingCounter is.
type SlidingStats struct {
	Elements uint64 // cells in use
	Bytes    uint64 // allocated for cells
	Failures uint64 // ids let in because no cell was free
}

// Stats looks at one stripe after the other.
func (f *SlidingCounter) Stats() SlidingStats {
	var st SlidingStats
	for i := range f.stripes {
		s := &f.stripes[i]
		s.mu.Lock()
		st.Failures += s.failures
		for k, n := range s.elements {
			st.Elements += uint64(n)
			st.Bytes += 2 * uint64(len(s.splits[k]))
		}
		s.mu.Unlock()
	}
	return st
}

// MarshalBinary copies one stripe after the other, the zeros between cells as lengths.
// The body is all varints: capacity, splits, stripes; per stripe head, splits behind it
// and failures; per split, until its cells are complete, a number of zeros, a number of
// cells and those cells, two bytes each.
func (f *SlidingCounter) MarshalBinary() ([]byte, error) {
	b := begin(kindSliding)
	for _, n := range []uint64{f.cfg.Capacity, uint64(f.cfg.Splits), uint64(len(f.stripes))} {
		b = binary.AppendUvarint(b, n)
	}
	for i := range f.stripes {
		s := &f.stripes[i]
		s.mu.Lock()
		b = binary.AppendUvarint(b, uint64(s.head))
		b = binary.AppendUvarint(b, uint64(s.behind))
		b = binary.AppendUvarint(b, s.failures)
		for _, cells := range s.splits {
			b = appendCells(b, cells, f.cells)
		}
		s.mu.Unlock()
	}
	return seal(b), nil
}

func appendCells(b []byte, cells []uint16, size int) []byte {
	if cells == nil {
		return binary.AppendUvarint(binary.AppendUvarint(b, uint64(size)), 0)
	}
	for at := 0; at < len(cells); {
		zeros := at
		for at < len(cells) && cells[at] == 0 {
			at++
		}
		used := at
		for at < len(cells) && cells[at] != 0 {
			at++
		}
		b = binary.AppendUvarint(b, uint64(used-zeros))
		b = binary.AppendUvarint(b, uint64(at-used))
		for _, c := range cells[used:at] {
			b = binary.LittleEndian.AppendUint16(b, c)
		}
	}
	return b
}

// UnmarshalBinary takes the state of a counter with the same capacity and splits;
// thresholds may differ.
func (f *SlidingCounter) UnmarshalBinary(data []byte) error {
	r, err := open(data, kindSliding)
	if err != nil {
		return err
	}
	if c, n := r.uvarint(), r.uvarint(); r.err == nil && (c != f.cfg.Capacity || n != uint64(f.cfg.Splits)) {
		r.fail("it is of %d ids in %d splits, the filter of %d in %d: keep both, or start without the state", c, n, f.cfg.Capacity, f.cfg.Splits)
	}
	if n := r.uvarint(); r.err == nil && n != uint64(len(f.stripes)) {
		r.fail("it has %d stripes, the filter %d", n, len(f.stripes))
	}
	loaded := make([]stripe, len(f.stripes))
	for i := range loaded {
		if r.err != nil {
			return r.err
		}
		f.readStripe(r, &loaded[i])
	}
	if err := r.end(); err != nil {
		return err
	}
	for i := range f.stripes {
		s, l := &f.stripes[i], &loaded[i]
		s.mu.Lock()
		s.splits, s.elements, s.head, s.behind, s.failures = l.splits, l.elements, l.head, l.behind, l.failures
		s.mu.Unlock()
	}
	return nil
}

func (f *SlidingCounter) readStripe(r *reader, s *stripe) {
	head, behind := r.uvarint(), r.uvarint()
	s.failures = r.uvarint()
	if head >= uint64(f.cfg.Splits) || behind > uint64(f.cfg.Splits-ahead) {
		r.fail("its head is split %d with %d behind it, of %d", head, behind, f.cfg.Splits)
	}
	s.head, s.behind = int(head), int(behind)
	s.splits, s.elements = make([][]uint16, f.cfg.Splits), make([]int, f.cfg.Splits)
	for k := range s.splits {
		for at := 0; at < f.cells && r.err == nil; {
			zeros, used := r.uvarint(), r.uvarint()
			left := uint64(f.cells - at)
			if zeros > left || used > left-zeros || zeros+used == 0 || 2*used > uint64(len(r.b)) {
				r.fail("a split of it has %d empty and %d used cells where %d are left", zeros, used, left)
				return
			}
			at += int(zeros)
			if used > 0 && s.splits[k] == nil {
				s.splits[k] = make([]uint16, f.cells)
			}
			for i := range int(used) {
				c := binary.LittleEndian.Uint16(r.b[2*i:])
				if c&15 == 0 {
					r.fail("a cell of it counts nothing")
					return
				}
				s.splits[k][at+i] = c
			}
			s.elements[k] += int(used)
			r.b, at = r.b[2*used:], at+int(used)
		}
	}
}
