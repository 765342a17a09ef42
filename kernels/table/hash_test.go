package table

import (
	"math/rand/v2"
	"testing"
)

// Whatever the number of buckets, shard, home and key together are the hash.
func TestHashesComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		id := int64(r.Uint64())
		h := hashOf(id)
		if idOf(h) != id {
			t.Fatalf("id %d comes back as %d", id, idOf(h))
		}
		n := uint32(1 + r.Uint64()>>(34+r.IntN(30)))
		if r.IntN(8) == 0 { // at the edges of a bucket
			h = h&^(1<<58-1) | (uint64(r.Uint32N(n))<<32/uint64(n)<<26+r.Uint64()%3-1)&(1<<58-1)
		}
		home := homeOf(h, n)
		if home >= n {
			t.Fatalf("home %d of %d", home, n)
		}
		key := keyBits(h, log2(n))
		if key&(1<<(6+log2(n))-1) != 0 {
			t.Fatalf("the key %#x of %d buckets leaves no room", key, n)
		}
		if got := hashAt(int(h>>58), home, n, key); got != h {
			t.Fatalf("hash %#x with %d buckets comes back as %#x", h, n, got)
		}
	}
}
