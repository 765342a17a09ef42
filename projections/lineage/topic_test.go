package lineage_test

import (
	"testing"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
	"github.com/monolith-go/monolith/projections/lineage"
)

// The job's entry has the topic as it belongs to the job now, not as it was at its start.
func TestReplayTopic(t *testing.T) {
	foldtest.Replay(t, "testdata/topic.jsonl", "testdata/topic.want.json",
		follow.View[lineage.State]{Name: lineage.Name, Version: lineage.Version, New: lineage.New, Fold: lineage.Fold})
}
