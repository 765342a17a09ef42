package zkdiff

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/monolith-go/monolith/internal/jute"
)

// fieldKind is how a field of an answer is compared.
type fieldKind uint8

const (
	text  fieldKind = iota // as it is
	zxid                   // by rank
	owner                  // by which session it is
)

type field struct {
	kind fieldKind
	text string
	n    int64
}

func (f field) String() string {
	switch f.kind {
	case zxid:
		return fmt.Sprintf("zxid %#x", f.n)
	case owner:
		return fmt.Sprintf("owner %#x", uint64(f.n))
	}
	return fmt.Sprintf("%q", f.text)
}

func plain(format string, args ...any) field { return field{text: fmt.Sprintf(format, args...)} }

func stat(r *jute.Reader) []field {
	var s jute.Stat
	s.Decode(r)
	return []field{
		{kind: zxid, n: s.Czxid}, {kind: zxid, n: s.Mzxid}, {kind: zxid, n: s.Pzxid},
		plain("version %d cversion %d aversion %d", s.Version, s.Cversion, s.Aversion),
		{kind: owner, n: s.EphemeralOwner},
		plain("length %d children %d timed %v", s.DataLength, s.NumChildren, s.Ctime <= s.Mtime),
	}
}

func data(r *jute.Reader) []field {
	b := r.Buffer()
	return append([]field{plain("%q, absent %v", b, b == nil)}, stat(r)...)
}

// set reads a list that ZooKeeper gives in no order.
func set(r *jute.Reader) field {
	names := r.Strings()
	slices.Sort(names)
	return plain("%q", names)
}

// ranks pairs the zxids of two servers: they are alike when their order is.
type ranks struct{ pairs [][2]int64 }

func (x *ranks) same(a, b int64) bool {
	if a <= 0 || b <= 0 {
		return a == b
	}
	i, ok := slices.BinarySearchFunc(x.pairs, a, func(p [2]int64, a int64) int { return int(p[0] - a) })
	if ok {
		return x.pairs[i][1] == b
	}
	if (i > 0 && x.pairs[i-1][1] >= b) || (i < len(x.pairs) && x.pairs[i][1] <= b) {
		return false
	}
	x.pairs = slices.Insert(x.pairs, i, [2]int64{a, b})
	if len(x.pairs) > 1<<16 { // what is that old is in no stat any more, or not compared
		x.pairs = slices.Delete(x.pairs, 1, 1<<15)
	}
	return true
}

// recent is one of the last pairs.
func (x *ranks) recent(rng *rand.Rand) [2]int64 {
	return x.pairs[len(x.pairs)-1-rng.IntN(min(20, len(x.pairs)))]
}

// twins pairs the ids of sessions. Owners that are none, 0 and the marks of containers
// and times to live, are alike when they are equal.
type twins struct {
	pairs map[int64]int64
	back  map[int64]int64
}

func (x *twins) same(a, b int64) bool {
	if a == 0 || b == 0 || (a < 0 && a == b) {
		return a == b
	}
	if x.pairs == nil {
		x.pairs, x.back = map[int64]int64{}, map[int64]int64{}
	}
	was, ok := x.pairs[a]
	back, known := x.back[b]
	if !ok && !known {
		x.pairs[a], x.back[b] = b, a
		return true
	}
	return ok && known && was == b && back == a
}
