package runtime

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// Batches that are appended are the batch that all of their samples make, crossed features too.
func TestBatchesAppended(t *testing.T) {
	spec := rich()
	e := engineOf(t, spec, 2, 60)
	w, l := weightsOf(t, e), &Lane{}
	all := drawRich(rand.New(rand.NewPCG(4, 4)), 60)
	fill := func(samples []Sample) *Batch {
		b := e.NewBatch()
		for _, s := range samples {
			if err := b.Add(s); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	score := func(b *Batch) [][]float32 {
		if err := b.Seal(); err != nil {
			t.Fatal(err)
		}
		lookUp(b)
		scores, err := e.Score(l, b, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		return scores
	}
	want := score(fill(all))
	b := fill(nil)
	for _, part := range [][]Sample{all[:20], all[20:21], all[21:]} {
		if err := b.Append(fill(part)); err != nil {
			t.Fatal(err)
		}
	}
	got := score(b)
	for task := range spec.Tasks {
		if !slices.Equal(bitsOf(want[task]), bitsOf(got[task])) {
			t.Errorf("task %d: the scores differ", task)
		}
	}
	for i, s := range all {
		for f := range s.IDs {
			if len(s.IDs[f]) > 0 && s.IDs[f][0] != b.IDs(f, i)[0] {
				t.Fatalf("sample %d begins with %v of feature %d, want %v", i, b.IDs(f, i), f, s.IDs[f])
			}
		}
	}
	if err := b.Append(fill(all[:1])); !errors.Is(err, ErrFull) || b.Len() != 60 {
		t.Errorf("one more: %v, %d samples", err, b.Len())
	}
	if err := fill(nil).Append(engineOf(t, spec, 2, 60).NewBatch()); err == nil {
		t.Error("a batch of another engine is taken")
	}
}
