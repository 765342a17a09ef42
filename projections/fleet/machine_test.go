package fleet_test

import (
	"testing"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
)

// A machine's failure is of one epoch, and lasts until that says otherwise or is over.
func TestReplayMachine(t *testing.T) {
	foldtest.Replay(t, "testdata/machine.jsonl", "testdata/machine.want.json",
		follow.View[fleet.State]{Name: fleet.Name, Version: fleet.Version, New: fleet.New, Fold: fleet.Fold})
}
