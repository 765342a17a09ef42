package plan_test

import (
	"testing"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
	"github.com/monolith-go/monolith/projections/plan"
)

func TestReplay(t *testing.T) {
	foldtest.Replay(t, "testdata/story.jsonl", "testdata/story.want.json",
		follow.View[plan.State]{Name: plan.Name, Version: plan.Version, New: plan.New, Fold: plan.Fold})
}
