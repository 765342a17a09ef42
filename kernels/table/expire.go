package table

import (
	"math/bits"
	"unsafe"
)

// Expiry says how long rows live without an update, by slot.
type Expiry struct {
	// Days by slot, the upper bits of an id; slots that are not there have DefaultDays.
	Days map[int]uint32
	// DefaultDays is 36500 in the original. Zero days mean forever, here and in Days.
	DefaultDays uint32
}

// SlotOf is the slot of a feature id: bits 48 to 62.
func SlotOf(id int64) int { return int(uint64(id) >> 48 & (1<<15 - 1)) }

// Expired tells whether a row of id, last updated at unixSec, has expired at now: the
// days of its slot, of 86400 seconds, have passed since, or more.
func (e Expiry) Expired(id int64, unixSec, now uint32) bool {
	days, ok := e.Days[SlotOf(id)]
	if !ok {
		days = e.DefaultDays
	}
	return days > 0 && unixSec < now && uint64(now-unixSec) >= uint64(days)*86400
}

// sweep is how far Expire has come.
type sweep struct {
	shard  int
	bucket uint32
	base   unsafe.Pointer // of the array that bucket is in
}

// sweepSome is how many buckets are looked at under a lock.
const sweepSome = 16

// Newest is the greatest time that an update or a restored row came with, 0 without any.
// It is the clock that the original expires rows by: a table that learns nothing forgets
// nothing.
func (t *Table) Newest() uint32 { return t.newest.Load() }

// Expire removes rows that have expired at now, usually Newest. It looks at about budget
// buckets of six entries, goes on where the last call ended and says done when it has
// been through the table; the call after that begins anew. A shard is locked for 16
// buckets at a time, and lookups go on meanwhile. Rows added behind its back, or moved
// by growth or to make room, may wait for the next round.
func (t *Table) Expire(now uint32, policy Expiry, budget int) (removed int, done bool) {
	return t.ExpireEach(now, policy, budget, nil)
}

// ExpireEach is Expire that calls gone, unless nil, with each id whose row it removed.
// gone is called under a shard's lock: it must not call the table.
func (t *Table) ExpireEach(now uint32, policy Expiry, budget int, gone func(id int64)) (removed int, done bool) {
	t.sweepMu.Lock()
	defer t.sweepMu.Unlock()
	t.cut.RLock()
	defer t.cut.RUnlock()
	for ; budget > 0; budget -= sweepSome {
		s := &t.shards[t.sweep.shard]
		n, end := t.sweepShard(s, now, policy, gone)
		removed += n
		if !end {
			continue
		}
		t.sweep = sweep{shard: t.sweep.shard + 1}
		if t.sweep.shard == shardCount {
			t.sweep = sweep{}
			return removed, true
		}
	}
	return removed, false
}

// sweepShard does the next buckets of s. The old array of a growing shard comes before
// the new one: what moves meanwhile moves ahead of the sweep.
func (t *Table) sweepShard(s *shard, now uint32, policy Expiry, tell func(int64)) (removed int, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, at := s.head, &t.sweep
	if at.base != h.cur && (at.base != h.next || h.next == nil) {
		at.base, at.bucket = h.cur, 0
	}
	n := h.n
	if at.base == h.next {
		n = h.nextN
	}
	k, all := log2(n), n+tail(n)
	to := min(at.bucket+sweepSome, all)
	var times [sweepSome * perBucket]uint32 // asked for together, as they come from everywhere
	i := 0
	for b := at.bucket; b < to; b++ {
		e := bucketAt(at.base, b)
		for used := e.state & inUse; used != 0; used &= used - 1 {
			times[i] = *t.time(e.row(bits.TrailingZeros32(used), k))
			i++
		}
	}
	var gone []uint64
	i = 0
	walk(at.base, s.num, n, at.bucket, to, func(hash uint64, _ uint32) bool {
		if policy.Expired(idOf(hash), times[i], now) {
			gone = append(gone, hash)
		}
		i++
		return true
	})
	for _, hash := range gone {
		if t.removeRow(s, hash) {
			removed++
			if tell != nil {
				tell(idOf(hash))
			}
		}
	}
	if at.bucket = to; to < all {
		return removed, false
	}
	if at.base == h.cur && h.next != nil {
		at.base, at.bucket = h.next, 0
		return removed, false
	}
	return removed, true
}
