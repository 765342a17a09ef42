package catalog_test

import (
	"testing"

	"github.com/monolith-go/monolith/projections/catalog"
	"github.com/monolith-go/monolith/projections/follow"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
)

func TestReplay(t *testing.T) {
	foldtest.Replay(t, "testdata/story.jsonl", "testdata/story.want.json",
		follow.View[catalog.State]{Name: catalog.Name, Version: catalog.Version, New: catalog.New, Fold: catalog.Fold})
}
