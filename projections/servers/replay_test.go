package servers_test

import (
	"testing"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
	"github.com/monolith-go/monolith/projections/servers"
)

func TestReplay(t *testing.T) {
	foldtest.Replay(t, "testdata/story.jsonl", "testdata/story.want.json",
		follow.View[servers.State]{Name: servers.Name, Version: servers.Version, New: servers.New, Fold: servers.Fold})
}
