package lineage_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
)

// delete has the job say that a checkpoint and its export are gone.
func (f *fold) delete(ids ...int64) {
	f.add(&training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{
		Checkpoint: &training.Checkpoint{Id: 1 << 40}, RemovedCheckpoints: ids, RemovedExports: ids}}})
}

// TestGone: whatever is deleted in whatever order, exactly that is gone, in as few spans as there are gaps.
func TestGone(t *testing.T) {
	const n = 200
	r := rand.New(rand.NewPCG(1, 2))
	f := &fold{s: lineage.New()}
	want := map[int64]bool{}
	for range 150 {
		before := f.s.Jobs["j"].Gone
		kept := slices.Clone(before.Checkpoints)
		id := 1 + r.Int64N(n)
		want[id] = true
		f.delete(id)
		if !slices.Equal(kept, before.Checkpoints) {
			t.Fatal("a reader's spans have changed")
		}
		gone := f.s.Jobs["j"].Gone
		spans := 0
		for id := int64(0); id <= n+1; id++ {
			if gone.Checkpoints.Has(id) != want[id] || gone.Exports.Has(id) != want[id] {
				t.Fatalf("%d: %v and %v, want %v; %v", id, gone.Checkpoints.Has(id), gone.Exports.Has(id), want[id], gone)
			}
			if want[id] && !want[id-1] {
				spans++
			}
		}
		if len(gone.Checkpoints) != spans {
			t.Fatalf("%d spans, %v", spans, gone.Checkpoints)
		}
	}
}

// TestGoneIsBounded: a job that deletes every other checkpoint is known to have deleted the newest.
func TestGoneIsBounded(t *testing.T) {
	f := &fold{s: lineage.New()}
	for id := int64(2); id <= 4*lineage.MaxGone; id += 2 {
		f.delete(id)
	}
	gone := f.s.Jobs["j"].Gone.Checkpoints
	if len(gone) != lineage.MaxGone || !gone.Has(4*lineage.MaxGone) || gone.Has(2) || gone.Has(4*lineage.MaxGone-1) {
		t.Errorf("%d spans, from %v to %v", len(gone), gone[0], gone[len(gone)-1])
	}
}
