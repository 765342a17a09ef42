//go:build !race

package runtime

import (
	"math/rand/v2"
	"testing"
)

// Once a batch of its size was seen, a step allocates nothing; nor does scoring.
func TestAStepAllocatesNothing(t *testing.T) {
	spec := wide()
	e := engineOf(t, spec, 3, 64)
	rng := rand.New(rand.NewPCG(1, 2))
	large, small := draw(rng, spec, 64), draw(rng, spec, 9)
	b, l, w := e.NewBatch(), &Lane{}, weightsOf(t, e)
	var scores []float32
	step := func(s samples) {
		b.Reset()
		for i, ids := range s.ids {
			if err := b.Add(ids, s.labels[i]); err != nil {
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
		var err error
		if scores, err = e.Score(l, b, w, scores[:0]); err != nil {
			t.Fatal(err)
		}
	}
	step(large)
	if n := testing.AllocsPerRun(100, func() { step(small); step(large) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
