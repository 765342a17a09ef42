package journal

import (
	"testing"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Every event of the story does what it says: nothing is refused, and what came up is
// written to until the end.
func TestTheStoryMeansSomething(t *testing.T) {
	const n = storyMake + 4*storyArrive
	b := mem.New()
	defer b.Close()
	if err := storyOf(t.Context(), b, 0, n); err != nil {
		t.Fatal(err)
	}
	tree, alive := view.New(), fleet.New()
	silent := 0
	err := b.Log().Follow(t.Context(), 1, n, func(r events.Recorded) error {
		tree = view.Fold(tree, r)
		did := tree.Effects()
		alive = fleet.Fold(alive, r)
		if did.Outcome != nil && did.Outcome.Code != wire.OK {
			t.Errorf("sequence %d is refused with %d", r.Seq, did.Outcome.Code)
		}
		if r.Seq > storyArrive && len(did.Changes) == 0 {
			silent++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if silent > 0 || len(tree.Skipped) > 0 || len(alive.Skipped) > 0 {
		t.Errorf("%d events changed nothing, %v and %v were skipped", silent, tree.Skipped, alive.Skipped)
	}
	if len(tree.Containers) != 100 || len(tree.Replicas) != 125 || len(alive.Containers) != 100 {
		t.Errorf("%d containers, %d in the fleet, %d replicas", len(tree.Containers), len(alive.Containers), len(tree.Replicas))
	}
}

func TestRebuildBenchmark(t *testing.T) {
	results, err := (&bench.Runner{}).Run(t.Context(), []bench.Benchmark{Rebuild([]int{2000})})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 6 || results[4].Name != "rebuild/n=2000 znode" || results[5].Name != "rebuild/n=2000 znode CPU" {
		t.Fatalf("%+v", results)
	}
	for _, r := range results {
		if !(r.Value > 0) || !(r.BaselineValue > 0) {
			t.Errorf("%s: nothing was measured", r)
		}
	}
}
