package table

import (
	"slices"
	"testing"
)

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
