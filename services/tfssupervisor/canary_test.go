package tfssupervisor_test

import (
	"testing"

	"github.com/monolith-go/monolith/events/publish"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// The candidate of a canary is served beside the planned version from when it has been copied until
// the verdict, and its state is never the replica's.
func TestCandidateBesideThePlannedVersion(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"entry"}})
	h.copied("entry", 7, "host")
	f.set("m:entry", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7")

	canary := func(candidate int64) {
		h.append("publish", "m", &publish.Event{Body: &publish.Event_CanaryDeclared{CanaryDeclared: &publish.CanaryDeclared{
			ModelName: "m", Stable: 7, Candidate: candidate, Share: 0.5, ExpiresMs: 1, Rule: &publish.Rule{MinRatings: 1}}}})
	}
	verdict := func(candidate int64, v publish.CanaryDecided_Verdict) {
		h.append("publish", "m", &publish.Event{Body: &publish.Event_CanaryDecided{CanaryDecided: &publish.CanaryDecided{
			ModelName: "m", Candidate: candidate, Verdict: v, Reason: "r"}}})
	}
	canary(9)
	h.copied("entry", 9, "elsewhere")
	h.wantConfig(f, "m:entry@/copies/m/entry/[7]")
	h.copied("entry", 9, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[7 9]")
	f.set("m:entry", 9, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7")
	f.set("m:entry", 7, apis.ModelVersionStatus_LOADING, "") // only the candidate answers
	h.wantReplicas("m/entry:0/2 LOADING v7")
	f.set("m:entry", 7, apis.ModelVersionStatus_AVAILABLE, "")
	verdict(9, publish.CanaryDecided_ROLLED_BACK)
	h.wantConfig(f, "m:entry@/copies/m/entry/[7]")
	f.set("m:entry", 9, apis.ModelVersionStatus_END, "")

	canary(8)
	h.copied("entry", 8, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[7 8]")
	f.set("m:entry", 8, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantFacts("started 1001", "loading m:entry/7", "available m:entry/7", "loading m:entry/9", "available m:entry/9", "unloading m:entry/9",
		"loading m:entry/8", "available m:entry/8")
	verdict(8, publish.CanaryDecided_PROMOTED)
	h.plan(8, map[string][]string{"c.0": {"entry"}})
	h.wantConfig(f, "m:entry@/copies/m/entry/[8]")
	f.set("m:entry", 7, apis.ModelVersionStatus_END, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v8")

	h.wantFacts("started 1001", "loading m:entry/7", "available m:entry/7", "loading m:entry/9", "available m:entry/9", "unloading m:entry/9",
		"loading m:entry/8", "available m:entry/8", "unloading m:entry/7")
}
