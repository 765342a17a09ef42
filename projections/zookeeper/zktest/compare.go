package zktest

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// fieldKind is how a field of an answer is compared.
type fieldKind uint8

const (
	text  fieldKind = iota // as it is
	zxid                   // by rank
	mzxid                  // by rank, too; of the node that was asked about
	owner                  // by which session it is
)

type field struct {
	kind fieldKind
	text string
	n    int64
}

func (f field) String() string {
	switch f.kind {
	case zxid, mzxid:
		return fmt.Sprintf("zxid %#x", f.n)
	case owner:
		return fmt.Sprintf("owner %#x", uint64(f.n))
	}
	return fmt.Sprintf("%q", f.text)
}

func plain(format string, args ...any) field { return field{text: fmt.Sprintf(format, args...)} }

func stat(r *wire.Reader) []field {
	var s wire.Stat
	s.Decode(r)
	return []field{
		{kind: zxid, n: s.Czxid}, {kind: mzxid, n: s.Mzxid}, {kind: zxid, n: s.Pzxid},
		plain("version %d cversion %d aversion %d", s.Version, s.Cversion, s.Aversion),
		{kind: owner, n: s.EphemeralOwner},
		plain("length %d children %d timed %v", s.DataLength, s.NumChildren, s.Ctime <= s.Mtime),
	}
}

func data(r *wire.Reader) []field {
	b := r.Buffer()
	return append([]field{plain("%q, absent %v", b, b == nil)}, stat(r)...)
}

// set reads a list that ZooKeeper gives in no order.
func set(r *wire.Reader) field {
	names := r.Strings()
	slices.Sort(names)
	return plain("%q", names)
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
