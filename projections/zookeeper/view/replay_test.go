package view_test

import (
	"testing"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

func TestReplay(t *testing.T) {
	foldtest.Replay(t, "testdata/story.jsonl", "testdata/story.want.json",
		follow.View[view.State]{Name: view.Name, Version: view.Version, New: view.New, Fold: view.Fold})
}

func TestReplayWrites(t *testing.T) {
	foldtest.Replay(t, "testdata/writes.jsonl", "testdata/writes.want.json",
		follow.View[view.State]{Name: view.Name, Version: view.Version, New: view.New, Fold: view.Fold})
}
