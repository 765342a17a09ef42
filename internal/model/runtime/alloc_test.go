//go:build !race

package runtime

import (
	"math/rand/v2"
	"testing"
)

// Once a batch of its size was seen, a step allocates nothing; nor does scoring.
func TestAStepAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	plain := func(n int) (all []Sample) {
		s := draw(rng, wide(), n)
		for i, ids := range s.ids {
			all = append(all, one(ids, s.labels[i]))
		}
		return all
	}
	for _, tc := range []struct {
		name         string
		e            *Engine
		large, small []Sample
	}{
		{"one id each", engineOf(t, wide(), 3, 64), plain(64), plain(9)},
		{"several ids, floats, tasks", engineOf(t, rich(), 3, 64), drawRich(rng, 64), drawRich(rng, 9)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := tc.e
			b, l, w := e.NewBatch(), e.NewLane(), weightsOf(t, e)
			scores := make([][]float32, len(e.Tasks()))
			step := func(all []Sample) {
				b.Reset()
				for _, s := range all {
					if err := b.Add(s); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Seal(); err != nil {
					t.Fatal(err)
				}
				for shard := range 3 {
					for _, block := range b.Blocks(shard) {
						for i := range block.Rows {
							block.Rows[i] = 0.25
						}
					}
				}
				if _, err := e.Train(l, b, w); err != nil {
					t.Fatal(err)
				}
				for i := range scores {
					scores[i] = scores[i][:0]
				}
				var err error
				if scores, err = e.Score(l, b, w, scores); err != nil {
					t.Fatal(err)
				}
			}
			step(tc.large)
			if n := testing.AllocsPerRun(100, func() { step(tc.small); step(tc.large) }); n > 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}
