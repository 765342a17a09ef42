package table

import (
	"github.com/monolith-go/monolith/kernels/internal/offheap"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	shardBits  = 6
	shardCount = 1 << shardBits

	line        = 64 // bytes of a cache line
	perBucket   = 6
	homeBits    = 5 // of an entry: how many buckets it lies behind its home
	maxDistance = 1<<homeBits - 1
	inUse       = 1<<perBucket - 1 // in state
	elsewhere   = 1 << 7           // in state: some at home here lie in their other bucket
	maxMoves    = 1024             // buckets that an insertion looks for room in
	// migrateStep is how many buckets one insertion moves while its shard grows: with a
	// growth by a quarter, eight are done four times over before the next growth is due.
	migrateStep = 8
	maxHomes    = 1 << 30 // buckets of a shard
)

// bucket is a cache line of six entries. An entry lies in its home bucket or in one other,
// which its hash tells. It has 80 bits: the key, the row's number and the distance from
// home. A word holds, from the top, the key, the low 1+k bits of the number and the
// distance; high holds the number's upper bits.
type bucket struct {
	word  [perBucket]uint64
	high  [perBucket]uint16
	state uint32 // bits 0 to 5: which entries are in use; elsewhere
}

// head is what a lookup needs of a shard, one cache line. Writers change it and whatever
// it leads to under the shard's lock, with seq odd; who reads without the lock compares
// seq before and after.
type head struct {
	seq   uint32
	k     uint32         // log2 of n
	cur   unsafe.Pointer // *[n+tail]bucket
	n     uint32         // home buckets in cur
	split uint32         // homes of cur below it have moved to next
	next  unsafe.Pointer // the greater array, while the shard grows
	nextN uint32
	nextK uint32
	form  uint32 // changes like seq, but only when entries come, go or move
	_     [line - 44]byte
}

// shard owns the rows of the ids that hash to it.
type shard struct {
	mu    sync.RWMutex
	head  *head
	num   int           // of this shard
	cur   offheap.Block // head.cur
	next  offheap.Block // head.next
	used  int           // entries in both
	free  []uint32      // numbers of removed rows, the last to be used first
	fresh uint32        // numbers fresh to end have never been used
	end   uint32

	touched []touched // rows written since TakeTouched, where the table tracks them

	moved int    // buckets moved by growing, ever: the work an insertion did
	moves []move // scratch of put
}

// begin and finish enclose every change of what lookups without a lock can see.
func (s *shard) begin()  { atomic.AddUint32(&s.head.seq, 1) }
func (s *shard) finish() { atomic.AddUint32(&s.head.seq, 1) }

// reform and reformed enclose, within those, every change of which entries lie where.
func (s *shard) reform()   { atomic.AddUint32(&s.head.form, 1) }
func (s *shard) reformed() { atomic.AddUint32(&s.head.form, 1) }

// tail is how many buckets behind the last home an array of n has.
func tail(n uint32) uint32 { return min(n, maxDistance) }

func bucketAt(base unsafe.Pointer, i uint32) *bucket {
	return (*bucket)(unsafe.Add(base, uintptr(i)*line))
}

// locate finds the entry of hash: its bucket and place there.
func (s *shard) locate(hash uint64) (b *bucket, place int, k uint32, ok bool) {
	if h := s.head; homeOf(hash, h.n) < h.split {
		return locate(h.next, h.nextN, h.nextK, hash)
	} else {
		return locate(h.cur, h.n, h.k, hash)
	}
}

func locate(base unsafe.Pointer, n, k uint32, hash uint64) (*bucket, int, uint32, bool) {
	home, want, mask := homeOf(hash, n), keyBits(hash, k), keyMask(k)
	for far := uint32(0); ; far = other(want, k) {
		b := bucketAt(base, home+far)
		for place := range perBucket {
			if (b.word[place]^want^uint64(far))&mask == 0 && b.state>>place&1 != 0 {
				return b, place, k, true
			}
		}
		if far > 0 || b.state&elsewhere == 0 {
			return nil, 0, k, false
		}
	}
}

// other is how far behind its home the other bucket of a word's entry lies: 1 to maxDistance,
// less in a small array, by the bits of the hash that the word holds.
func other(word uint64, k uint32) uint32 {
	return max(uint32(word>>(homeBits+1+k)*golden>>(64-homeBits))&reach(k), 1)
}

func reach(k uint32) uint32 { return 1<<min(k, homeBits) - 1 }

// keyMask selects key and distance of a word.
func keyMask(k uint32) uint64 { return ^((2<<k - 1) << homeBits) }

// row is the number in an entry.
func (b *bucket) row(place int, k uint32) uint32 {
	return uint32(b.high[place])<<(k+1) | uint32(b.word[place]>>homeBits)&(2<<k-1)
}

// find is the number of the row of hash.
func (s *shard) find(hash uint64) (row uint32, ok bool) {
	b, place, k, ok := s.locate(hash)
	if !ok {
		return 0, false
	}
	return b.row(place, k), true
}

// move is a step of the search for room: an entry at this place of the bucket of the move
// before would go to bucket at.
type move struct {
	at     uint32
	before int32 // in moves, negative: none, this is one of the two buckets of the new entry
	place  int32
}

// putIn adds an entry that is not there to an array: in its home if there is room, else in
// its other bucket, else where one of the entries there makes room by going to the other
// one of its own, which may take several such moves, as in cuckoo hashing. It fails where
// that does not help, or the number is too great for so few buckets.
func (s *shard) putIn(base unsafe.Pointer, n, k uint32, hash uint64, row uint32) bool {
	if uint64(row)>>(k+1) >= 1<<16 {
		return false
	}
	home, word, high := homeOf(hash, n), keyBits(hash, k)|uint64(row&(2<<k-1))<<homeBits, uint16(row>>(k+1))
	far := other(word, k)
	if bucketAt(base, home).state&inUse != inUse {
		enter(base, home, home, word, high)
		return true
	}
	if bucketAt(base, home+far).state&inUse != inUse {
		enter(base, home+far, home, word, high)
		return true
	}
	s.moves = append(s.moves[:0], move{at: home, before: -1}, move{at: home + far, before: -1})
	for i := 0; i < len(s.moves) && len(s.moves) < maxMoves; i++ {
		from := s.moves[i].at
		for place, w := range bucketAt(base, from).word {
			to := from - uint32(w&maxDistance) // its home
			if to == from {
				to += other(w, k)
			}
			if bucketAt(base, to).state&inUse != inUse {
				s.moves = append(s.moves, move{to, int32(i), int32(place)})
				enter(base, s.makeRoom(base), home, word, high)
				return true
			}
			if !slices.ContainsFunc(s.moves, func(m move) bool { return m.at == to }) {
				s.moves = append(s.moves, move{to, int32(i), int32(place)})
			}
		}
	}
	return false
}

// makeRoom does the moves that the last one needs, itself first, and returns the bucket
// that has room then.
func (s *shard) makeRoom(base unsafe.Pointer) uint32 {
	m := s.moves[len(s.moves)-1]
	for m.before >= 0 {
		before := s.moves[m.before]
		from := bucketAt(base, before.at)
		word := from.word[m.place]
		enter(base, m.at, before.at-uint32(word&maxDistance), word&^maxDistance, from.high[m.place])
		from.state &^= 1 << m.place
		m = before
	}
	return m.at
}

// enter writes an entry into the bucket at, which has room, without a distance in word.
func enter(base unsafe.Pointer, at, home uint32, word uint64, high uint16) {
	b := bucketAt(base, at)
	place := bits.TrailingZeros32(^b.state)
	b.word[place], b.high[place] = word|uint64(at-home), high
	b.state |= 1 << place
	if at != home {
		bucketAt(base, home).state |= elsewhere
	}
}

// insert adds hash, which is not there. seq and form are odd. It fails only where too many ids
// share the first bits of their hash.
func (t *Table) insert(s *shard, hash uint64, row uint32) bool {
	h := s.head
	if h.next == nil && s.used >= int(h.n)*perBucket*9/10 {
		n := 2 * h.n
		if h.n >= 256 {
			n = h.n + h.n/4
		}
		if n <= maxHomes {
			s.next = t.mem.Get(bucketBytes(n), true)
			h.next, h.nextN, h.nextK = s.next.At, n, log2(n)
		}
	}
	if h.next != nil && !t.migrate(s, migrateStep) {
		if !t.rebuild(s) {
			return false
		}
	}
	for !s.put(hash, row) {
		if !t.rebuild(s) {
			return false
		}
	}
	s.used++
	return true
}

func bucketBytes(n uint32) uintptr { return uintptr(n+tail(n)) * line }

// put adds hash to the array that is in charge of it.
func (s *shard) put(hash uint64, row uint32) bool {
	h := s.head
	if homeOf(hash, h.n) < h.split {
		return s.putIn(h.next, h.nextN, h.nextK, hash, row)
	}
	return s.putIn(h.cur, h.n, h.k, hash, row)
}

// migrate moves the entries of up to steps home buckets to the greater array. seq is
// odd. At an entry for which the greater array has no room it stops, between two homes,
// and fails.
func (t *Table) migrate(s *shard, steps int) bool {
	h := s.head
	for ; steps > 0 && h.split < h.n; steps-- {
		var gone [maxDistance + 1]uint32 // what has moved, by distance
		fits := s.eachAt(h.split, func(far uint32, place int, hash uint64) bool {
			b := bucketAt(h.cur, h.split+far)
			if !s.putIn(h.next, h.nextN, h.nextK, hash, b.row(place, h.k)) {
				return false
			}
			gone[far] |= 1 << place
			return true
		})
		if !fits {
			// Those that have moved are at home in the old array still.
			s.eachAt(h.split, func(far uint32, place int, hash uint64) bool {
				if gone[far]>>place&1 != 0 {
					b, place, _, _ := locate(h.next, h.nextN, h.nextK, hash)
					b.state &^= 1 << place
				}
				return true
			})
			return false
		}
		for far, places := range gone {
			if places != 0 {
				bucketAt(h.cur, h.split+uint32(far)).state &^= places
			}
		}
		s.moved++
		h.split++
	}
	if h.split == h.n {
		t.mem.Drop(s.cur)
		s.cur, s.next = s.next, offheap.Block{}
		h.cur, h.n, h.k, h.split = h.next, h.nextN, h.nextK, 0
		h.next, h.nextN, h.nextK = nil, 0, 0
	}
	return true
}

// eachAt calls f with the entries of cur that are at home in one bucket, until f says
// false.
func (s *shard) eachAt(home uint32, f func(far uint32, place int, hash uint64) bool) bool {
	h := s.head
	for far := range max(reach(h.k), 1) + 1 {
		b := bucketAt(h.cur, home+far)
		for place := range perBucket {
			if uint32(b.word[place]&maxDistance) != far || b.state>>place&1 == 0 {
				continue
			}
			if !f(far, place, hashAt(s.num, home, h.n, b.word[place]&keyMask(h.k)&^maxDistance)) {
				return false
			}
		}
		if far == 0 && b.state&elsewhere == 0 {
			break
		}
	}
	return true
}

// rebuild makes a shard anew with twice the buckets, at once: the way out where ids lie
// so unevenly that a bucket finds no room near by. With evenly spread hashes that does
// not happen once in the life of a table. seq and form are odd.
func (t *Table) rebuild(s *shard) bool {
	h := s.head
	n, k := max(h.n, h.nextN), uint32(0)
	var next offheap.Block
	for fits := false; !fits; {
		if n = doubled(n, s.used); n == 0 {
			return false
		}
		next = t.mem.Get(bucketBytes(n), true)
		k, fits = log2(n), true
		s.each(func(hash uint64, row uint32) bool {
			fits = s.putIn(next.At, n, k, hash, row)
			return fits
		})
		if !fits {
			t.mem.Drop(next)
		}
	}
	s.moved += int(h.n)
	t.mem.Drop(s.cur)
	t.mem.Drop(s.next)
	s.cur, s.next = next, offheap.Block{}
	h.cur, h.n, h.k, h.split = next.At, n, k, 0
	h.next, h.nextN, h.nextK = nil, 0, 0
	return true
}

// doubled is twice the n buckets of a shard in which used entries find no room; 0 where
// that does not help, as they take less than a twentieth of it, or n is too great.
func doubled(n uint32, used int) uint32 {
	if n > 64 && used < int(n)/4 || n > maxHomes/2 {
		return 0
	}
	return 2 * n
}

// each calls f with every entry, in the order of the arrays, until f says false.
func (s *shard) each(f func(hash uint64, row uint32) bool) {
	h := s.head
	walk(h.cur, s.num, h.n, 0, h.n+tail(h.n), f)
	if h.next != nil {
		walk(h.next, s.num, h.nextN, 0, h.nextN+tail(h.nextN), f)
	}
}

// walk calls f with the entries of the buckets from to to.
func walk(base unsafe.Pointer, num int, n, from, to uint32, f func(hash uint64, row uint32) bool) bool {
	k := log2(n)
	for i := from; i < to; i++ {
		b := bucketAt(base, i)
		for used := b.state & inUse; used != 0; used &= used - 1 {
			place := bits.TrailingZeros32(used)
			far := uint32(b.word[place] & maxDistance)
			if !f(hashAt(num, i-far, n, b.word[place]&keyMask(k)&^maxDistance), b.row(place, k)) {
				return false
			}
		}
	}
	return true
}

// remove drops the entry of hash and keeps the number of its row for another. seq and form are odd.
func (s *shard) remove(hash uint64) bool {
	b, place, k, ok := s.locate(hash)
	if !ok {
		return false
	}
	s.free = append(s.free, b.row(place, k))
	b.state &^= 1 << place
	s.used--
	return true
}

// reset makes s an empty shard of n home buckets.
func (t *Table) reset(s *shard, n uint32) {
	t.mem.Drop(s.cur)
	t.mem.Drop(s.next)
	s.cur, s.next = t.mem.Get(bucketBytes(n), true), offheap.Block{}
	h := s.head
	h.cur, h.n, h.k, h.split = s.cur.At, n, log2(n), 0
	h.next, h.nextN, h.nextK = nil, 0, 0
	s.used, s.free, s.fresh, s.end, s.touched = 0, nil, 0, 0, nil
}
