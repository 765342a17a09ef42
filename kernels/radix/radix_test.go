package radix

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Few ids and many, whose bytes are nearly all alike or all drawn.
func TestSort(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, n := range []int{0, 1, 511, 512, 513, 20_000} {
		for _, wide := range []bool{false, true} {
			ids := make([]int64, n)
			for i := range ids {
				if ids[i] = r.Int64N(1<<48) | 3<<48; wide {
					ids[i] = int64(r.Uint64())
				}
			}
			want := slices.Sorted(slices.Values(ids))
			if got := Sort(ids); !slices.Equal(got, want) {
				t.Errorf("%d ids, wide %v: not in order", n, wide)
			}
		}
	}
}
