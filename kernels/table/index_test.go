package table

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/monolith-go/monolith/kernels/optim"
)

// However rows come and go, an entry lies in its home or in its one other bucket, and its
// home says so: that is all that lookups look at.
func TestEntriesLieInOneOfTwoBuckets(t *testing.T) {
	tab := must(New(Config{Name: "t", Dim: 1, Optimizer: optim.SGD{LearningRate: 1}, Initializer: Zeros{}}))
	s, r := &tab.shards[7], rand.New(rand.NewPCG(7, 7))
	var ids []int64
	zero := []float32{0}
	far, longest := 0, 0
	check := func() {
		seen := 0
		far = 0
		look := func(base *bucket, n uint32) {
			k := log2(n)
			for i := range n + tail(n) {
				b := bucketAt(unsafe.Pointer(base), i)
				for place, w := range b.word {
					if b.state>>place&1 == 0 {
						continue
					}
					seen++
					d := uint32(w & maxDistance)
					if d == 0 {
						continue
					}
					far++
					if d != other(w, k) || bucketAt(unsafe.Pointer(base), i-d).state&elsewhere == 0 {
						t.Fatalf("an entry lies %d behind its home: its other bucket is %d behind", d, other(w, k))
					}
				}
			}
		}
		look((*bucket)(s.head.cur), s.head.n)
		if s.head.next != nil {
			look((*bucket)(s.head.next), s.head.nextN)
		}
		if seen != len(ids) || seen != s.used {
			t.Fatalf("%d entries of %d ids, the shard counts %d", seen, len(ids), s.used)
		}
	}
	for i := range 60_000 {
		if len(ids) > 0 && r.IntN(4) == 0 {
			at := r.IntN(len(ids))
			if tab.Remove(ids[at:at+1]) != 1 {
				t.Fatalf("id %d has no row", ids[at])
			}
			ids[at] = ids[len(ids)-1]
			ids = ids[:len(ids)-1]
		} else {
			id := crafted(7, 0, 0, r.Uint64())
			if err := tab.Assign([]int64{id}, zero, 1, 0); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
			longest = max(longest, len(s.moves))
		}
		if i%2000 == 0 {
			check()
		}
	}
	check()
	if far == 0 || longest < 20 {
		t.Errorf("%d entries are not at home, and room was never farther than %d buckets: nothing was tested", far, longest)
	}
	out := make([]float32, len(ids))
	if found, err := tab.Lookup(ids, out, nil); err != nil || found != len(ids) {
		t.Fatal(found, err)
	}
}
