package state

import (
	"time"

	"github.com/monolith-go/monolith/events/delta"
)

// waiting is what of a table is put off.
type waiting struct {
	interval   time.Duration // the longest that a row waits; 0: none does
	next       time.Time     // when all of them go
	since      uint64        // the round in which the first of those came that wait; 0: none waits
	*followers               // nil: rows wait whatever became of them
}

func newWaiting(k tableKind) *waiting {
	w := &waiting{interval: k.interval}
	if k.tolerance != nil {
		w.followers = &followers{tolerance: float64(*k.tolerance), rows: map[int64]*had{}}
	}
	return w
}

// due says whether all of the table's rows go at now; the zero time is always late enough.
func (w *waiting) due(now time.Time) bool { return now.IsZero() || !now.Before(w.next) }

// holds says whether rows wait that are not listed by their table any more.
func (w *waiting) holds() bool { return w.followers != nil && w.held > 0 }

// went notes that all of them were collected at now.
func (w *waiting) went(now time.Time) {
	if !now.IsZero() {
		w.next = now.Add(w.interval)
	}
}

// wait notes whether rows were left at the end of a round.
func (w *waiting) wait(round uint64, some bool) {
	switch {
	case !some:
		w.since = 0
	case w.since == 0:
		w.since = round
	}
}

// learnt are ranges that no delta may name yet: rows that they made wait. It has those of the
// rounds from one on, up to the next one's.
type learnt struct {
	round  uint64
	ranges []*delta.Range
}

// contained takes the ranges of this round in, and out those of which no row waits any more. The
// caller holds mu, and all tables have been looked at.
func (s *Shard) contained() (ranges []*delta.Range) {
	oldest, began := s.round+1, len(s.learnt) == 0
	for _, w := range s.waiting {
		if w.since > 0 {
			oldest, began = min(oldest, w.since), began || w.since == s.round
		}
	}
	if began { // else what has waited ends before this round or behind it: one entry does for both
		s.learnt = append(s.learnt, learnt{round: s.round})
	}
	last := &s.learnt[len(s.learnt)-1]
	for _, r := range s.ranges {
		last.ranges = join(last.ranges, r)
	}
	s.ranges = nil
	for len(s.learnt) > 0 && s.learnt[0].round < oldest {
		for _, r := range s.learnt[0].ranges {
			ranges = join(ranges, r)
		}
		s.learnt = s.learnt[1:]
	}
	return ranges
}

// join adds a range to others, of the same partition behind all of them.
func join(ranges []*delta.Range, r *delta.Range) []*delta.Range {
	for i := len(ranges) - 1; i >= 0; i-- {
		if last := ranges[i]; last.Partition == r.Partition {
			if last.To == r.From && last.Epoch == r.Epoch {
				last.To = r.To
				return ranges
			}
			break
		}
	}
	return append(ranges, r)
}
