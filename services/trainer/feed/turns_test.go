package feed

import (
	"math/rand/v2"
	"testing"
)

func TestTurns(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		tu := Turns{Size: 1 + rng.Int64N(5), N: 1 + rng.IntN(5)}
		bounded := rng.IntN(2) == 0
		if bounded {
			for range tu.N {
				tu.Ends = append(tu.Ends, rng.Int64N(30))
			}
		}
		var k uint64
		for i := range int64(30) { // the meaning: round after round, who has a batch left
			for p := range int32(tu.N) {
				if tu.Batches(p) <= i {
					continue
				}
				if got := tu.Turn(p, i); got != k {
					t.Fatalf("%+v: batch %d of partition %d has turn %d, want %d", tu, i, p, got, k)
				}
				from, to := tu.Span(p, i)
				if from != i*tu.Size || to <= from || bounded && to > tu.Ends[p] || to-from > tu.Size {
					t.Fatalf("%+v: batch %d of partition %d is %d to %d", tu, i, p, from, to)
				}
				k++
			}
		}
	}
}
