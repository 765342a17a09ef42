package znode_test

import (
	"testing"

	"github.com/monolith-go/monolith/projections/follow"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
	"github.com/monolith-go/monolith/projections/znode"
)

func TestReplay(t *testing.T) {
	foldtest.Replay(t, "testdata/story.jsonl", "testdata/story.want.json",
		follow.View[znode.State]{Name: znode.Name, Version: znode.Version, New: znode.New, Fold: znode.Fold})
}
