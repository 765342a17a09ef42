package tfssupervisor_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/tfssupervisor"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// wantGiven waits until the view says just this of the container.
func (h *harness) wantGiven(want ...string) {
	h.t.Helper()
	wait.Until(h.t, "the view of what it has been given", func() error {
		var got []string
		for version, last := range h.servers().Containers["c.0"] {
			got = append(got, fmt.Sprint(version, " ", last.Phase))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q; the facts are %q", got, want, h.facts())
		}
		return nil
	})
}

// A server that chooses versions by itself has those told of unloaded that it has no more, and they alone.
func TestChosenVersionsAreUnloaded(t *testing.T) {
	h := newHarness(t, func(h *harness) {
		h.change = func(c *tfssupervisor.Config) {
			c.Fixed = []tfssupervisor.FixedModel{{Model: "m", Sub: "ps_0", Name: "own"}}
		}
	})
	f := h.born()
	f.set("own", 1, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantGiven("m/ps_0/1 available")
	for v := int64(2); v <= 5; v++ {
		f.set("own", v, apis.ModelVersionStatus_AVAILABLE, "")
		h.wantReplicas(fmt.Sprintf("m/ps:0/2 AVAILABLE v%d", v))
		f.set("own", v-1, apis.ModelVersionStatus_UNLOADING, "")
		h.wantGiven(fmt.Sprintf("m/ps_0/%d available", v))
		f.set("own", v-1, apis.ModelVersionStatus_END, "")
	}
	f.set("own", 6, apis.ModelVersionStatus_AVAILABLE, "") // beside the fifth
	h.wantGiven("m/ps_0/5 available", "m/ps_0/6 available")
	f.set("own", 5, apis.ModelVersionStatus_END, "")
	h.wantGiven("m/ps_0/6 available")
	f.set("own", 6, apis.ModelVersionStatus_END, "it is cut short")
	h.wantGiven("m/ps_0/6 failed")
	f.forget("own")
	h.wantGiven()
}

// A sub-model that is wanted no more goes with its canary's candidate; both are told of anew when it comes back.
func TestCandidateGoesWithItsSubModel(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"entry"}})
	h.copied("entry", 7, "host")
	h.copied("entry", 9, "host")
	h.append("publish", "m", &publish.Event{Body: &publish.Event_CanaryDeclared{CanaryDeclared: &publish.CanaryDeclared{
		ModelName: "m", Stable: 7, Candidate: 9, Share: 0.5, ExpiresMs: 1, Rule: &publish.Rule{MinRatings: 1}}}})
	h.wantConfig(f, "m:entry@/copies/m/entry/[7 9]")
	f.set("m:entry", 7, apis.ModelVersionStatus_AVAILABLE, "")
	f.set("m:entry", 9, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantGiven("m/entry/7 available", "m/entry/9 available")
	h.plan(7, map[string][]string{"other": {"entry"}})
	h.wantConfig(f)
	h.wantGiven()
	h.plan(7, map[string][]string{"c.0": {"entry"}})
	h.wantConfig(f, "m:entry@/copies/m/entry/[7 9]")
	h.wantGiven("m/entry/7 available", "m/entry/9 available")
}
