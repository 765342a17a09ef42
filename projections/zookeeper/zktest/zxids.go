package zktest

import (
	"math/rand/v2"
	"slices"
	"sort"
)

// zxids pairs the zxids of two servers. ZooKeeper gives every write one of its own; ours
// may give one to several writes that came at once. So each zxid of ZooKeeper's has one of ours, and:
//
//   - between batches, which follow one another on both servers, the order is the same;
//   - within a batch what one session did, or what was done in one lane, is in the same
//     order, and may have the same zxid of ours where that server packs;
//   - what several lanes did at once has an order of its own on either server.
type zxids struct {
	packs  bool
	lanes  bool   // the batch on its way is one of several lanes
	marks  []mark // the ends of batches, the oldest first
	pairs  []pair // by ZooKeeper's zxid
	shared int    // pairs whose zxid of ours an earlier one has, too
}

type pair struct {
	ours, real int64
	lane       int
}

// mark is the last zxid of either server when a batch had been answered.
type mark struct {
	ours, real int64
	lanes      bool // the batch was one of several lanes
}

const (
	anyLane = -1      // it is not known whose the zxid is
	kept    = 1 << 15 // pairs and marks; what is older than that is in no stat any more, or not compared
)

// same pairs two zxids that mean the same, or says that they cannot.
func (x *zxids) same(lane int, ours, real int64) bool {
	if ours <= 0 || real <= 0 {
		return ours == real
	}
	i := sort.Search(len(x.pairs), func(i int) bool { return x.pairs[i].real >= real })
	if i < len(x.pairs) && x.pairs[i].real == real {
		return x.pairs[i].ours == ours
	}
	k := sort.Search(len(x.marks), func(k int) bool { return x.marks[k].real >= real })
	after, until, lanes := mark{}, int64(1)<<62, x.lanes
	if k > 0 {
		after = x.marks[k-1]
	}
	if k < len(x.marks) {
		until, lanes = x.marks[k].real, x.marks[k].lanes
		if ours > x.marks[k].ours {
			return false
		}
	}
	if ours <= after.ours {
		return false
	}
	twin := false
	fits := func(p pair, less bool) bool {
		twin = twin || p.ours == ours
		switch {
		case p.ours == ours:
			return x.packs
		case lanes && (lane == anyLane || p.lane != lane):
			return true
		}
		return (p.ours < ours) == less
	}
	for j := i - 1; j >= 0 && x.pairs[j].real > after.real; j-- {
		if !fits(x.pairs[j], true) {
			return false
		}
	}
	for j := i; j < len(x.pairs) && x.pairs[j].real <= until; j++ {
		if !fits(x.pairs[j], false) {
			return false
		}
	}
	if twin {
		x.shared++
	}
	x.pairs = slices.Insert(x.pairs, i, pair{ours, real, lane})
	if len(x.pairs) > 2*kept {
		x.pairs = slices.Delete(x.pairs, 0, kept)
	}
	return true
}

// ends ends a batch: nothing is on its way any more.
func (x *zxids) ends(ours, real int64) bool {
	if n := len(x.marks); n > 0 {
		last := x.marks[n-1]
		if ours == last.ours || real == last.real {
			return ours == last.ours && real == last.real
		}
		if ours < last.ours || real < last.real {
			return false
		}
	}
	x.marks = append(x.marks, mark{ours, real, x.lanes})
	if len(x.marks) > 2*kept {
		x.marks = slices.Delete(x.marks, 0, kept)
	}
	return true
}

// ended says that nothing has been written since the last batch ended with these.
func (x *zxids) ended(ours, real int64) bool {
	n := len(x.marks)
	return n > 0 && x.marks[n-1].ours == ours && x.marks[n-1].real == real
}

// recent is one of the last moments between batches.
func (x *zxids) recent(rng *rand.Rand) mark {
	return x.marks[len(x.marks)-1-rng.IntN(min(20, len(x.marks)))]
}
