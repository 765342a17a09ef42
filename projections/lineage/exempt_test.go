package lineage_test

import (
	"slices"
	"testing"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
	"github.com/monolith-go/monolith/projections/lineage"
)

// Exemptions are a fold: of checkpoints that there are, until they are released or gone.
func TestReplayKept(t *testing.T) {
	foldtest.Replay(t, "testdata/kept.jsonl", "testdata/kept.want.json",
		follow.View[lineage.State]{Name: lineage.Name, Version: lineage.Version, New: lineage.New, Fold: lineage.Fold})
}

func (f *fold) keep(id int64) {
	f.add(&training.Event{Body: &training.Event_CheckpointKept{CheckpointKept: &training.CheckpointKept{Id: id}}})
}

// What is exempt outlives everything else in a log that never says what was deleted, within its
// own bound.
func TestExemptCheckpointsOutliveTheBound(t *testing.T) {
	f := &fold{s: lineage.New()}
	for id := int64(1); id <= 3*lineage.Kept; id++ {
		if f.saved(id); id <= lineage.MaxExempt+5 {
			f.keep(id)
		}
	}
	j := f.s.Jobs["j"]
	if len(j.Kept) != lineage.MaxExempt || len(j.Checkpoints) != lineage.Kept || len(j.Exports) != lineage.Kept {
		t.Fatalf("%d are exempt, there are %d checkpoints and %d exports", len(j.Kept), len(j.Checkpoints), len(j.Exports))
	}
	for i := range lineage.MaxExempt {
		id := int64(i + 1)
		if j.Checkpoints[i].V.GetId() != id || j.Exports[i].V.GetVersion() != id || !j.Exempt(id) {
			t.Errorf("place %d has checkpoint %v and export %v", i, j.Checkpoints[i].V.GetId(), j.Exports[i].V.GetVersion())
		}
	}
	if j.Exempt(lineage.MaxExempt+1) || !slices.IsSorted(j.Kept) {
		t.Errorf("exempt are %v", j.Kept)
	}
}
