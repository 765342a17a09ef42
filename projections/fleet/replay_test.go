package fleet_test

import (
	"testing"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
)

func TestReplay(t *testing.T) {
	foldtest.Replay(t, "testdata/story.jsonl", "testdata/story.want.json",
		follow.View[fleet.State]{Name: fleet.Name, Version: fleet.Version, New: fleet.New, Fold: fleet.Fold})
}
