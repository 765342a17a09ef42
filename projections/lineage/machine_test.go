package lineage_test

import (
	"testing"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
	"github.com/monolith-go/monolith/projections/lineage"
)

// What a job was paused for outlives the pause, so that nobody's resuming is undone.
func TestReplayMachine(t *testing.T) {
	foldtest.Replay(t, "testdata/machine.jsonl", "testdata/machine.want.json",
		follow.View[lineage.State]{Name: lineage.Name, Version: lineage.Version, New: lineage.New, Fold: lineage.Fold})
}
