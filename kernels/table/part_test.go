package table

import (
	"slices"
	"testing"
)

// Part says to which of parts, 0 to parts-1, an id belongs; ids spread evenly over them.
//
// Benchmarks of several cores need it: a caller that wants a great batch written on several cores
// splits it by Part and makes a call for each at the same time: equal ids stay together,
// so their gradients are summed as in one call. Where parts divides 64, no two parts share
// a lock. What of the batch an error leaves out is each call's own affair then.
func Part(id int64, parts int) int {
	return int(hashOf(id) >> 32 * uint64(parts) >> 32)
}

func TestPart(t *testing.T) {
	for parts := range 130 {
		if parts++; parts > 100 {
			parts *= 1000
		}
		counts, owner := make([]int, parts), [shardCount]int{}
		for id := range int64(10 * parts) {
			p := Part(id*7919, parts)
			counts[p]++
			if 64%parts != 0 {
				continue
			}
			if s := hashOf(id*7919) >> (64 - shardBits); owner[s] != 0 && owner[s] != p+1 {
				t.Fatalf("of %d, parts %d and %d share shard %d", parts, owner[s]-1, p, s)
			} else {
				owner[s] = p + 1
			}
		}
		if most := slices.Max(counts); most > 40 {
			t.Errorf("of %d ids, one of %d parts has %d", 10*parts, parts, most)
		}
	}
}
