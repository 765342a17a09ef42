package tfssupervisor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/tfssupervisor"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

func TestServerDiesAndIsStartedAgain(t *testing.T) {
	h := newHarness(t)
	first := h.born()
	h.plan(7, map[string][]string{"c.0": {"ps_1"}})
	h.copied("ps_1", 7, "host")
	h.wantConfig(first, "m:ps_1@/copies/m/ps_1/[7]")
	first.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v7")

	first.die(errors.New("segmentation fault"))
	second := h.born()
	h.wantConfig(second, "m:ps_1@/copies/m/ps_1/[7]")
	h.wantReplicas("m/ps:1/2 START v7")
	second.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v7")
	h.wantFacts("started 1001", "loading m:ps_1/7", "available m:ps_1/7", "exited 1001 1 segmentation fault",
		"started 1002", "loading m:ps_1/7", "available m:ps_1/7")
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.ContainsFunc(h.beats, func(b *replica.Heartbeat) bool {
		return b.GetContainer().GetGrpcAddress() == second.ln.Addr().String()
	}) {
		t.Error("no heartbeat names the new address")
	}
}

// A sub-model about which the server is silent is AVAILABLE to nobody, and keeps nobody
// from hearing about the others.
func TestSilenceAboutOneSubModel(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"entry", "ps_1"}})
	h.copied("entry", 7, "host")
	h.copied("ps_1", 7, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[7]", "m:ps_1@/copies/m/ps_1/[7]")
	f.set("m:entry", 7, apis.ModelVersionStatus_AVAILABLE, "")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_LOADING, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 LOADING v7")
	f.hush("m:entry")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 UNKNOWN v7", "m/ps:1/2 AVAILABLE v7")
	h.wantProblem("model server: it does not answer about m:entry (DeadlineExceeded)")
	f.hush()
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 AVAILABLE v7")
	h.wantProblem("")
	want := []string{"loading m:entry/7", "available m:entry/7", "failed (DeadlineExceeded: the model server does not answer about it) m:entry/7", "available m:entry/7"}
	wait.Until(h.t, "facts", func() error { // heartbeats do not wait for them
		var entry []string
		for _, fact := range h.facts() {
			if strings.Contains(fact, "m:entry") {
				entry = append(entry, fact)
			}
		}
		if !slices.Equal(entry, want) {
			return fmt.Errorf("%q, want %q", entry, want)
		}
		return nil
	})
}

// A server that answers nothing at all is killed, and another one takes its place.
func TestHungServerIsReplaced(t *testing.T) {
	h := newHarness(t, func(h *harness) {
		h.change = func(c *tfssupervisor.Config) { c.HangTimeout = 100 * time.Millisecond }
	})
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"ps_1"}})
	h.copied("ps_1", 7, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[7]")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v7")
	f.hush("*")
	second := h.born()
	second.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v7")
	h.wantProblem("")
	if got := h.facts(); !slices.ContainsFunc(got, func(fact string) bool {
		return strings.HasPrefix(fact, "exited 1001 1 it has answered nothing for") && strings.HasSuffix(fact, ", and was killed: killed")
	}) {
		t.Errorf("nothing says why it was killed: %q", got)
	}
}

// A server that does not know one sub-model serves the others.
func TestOneRefusedSubModelBlocksNobody(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	f.mu.Lock()
	f.picky = true
	f.mu.Unlock()
	h.plan(7, map[string][]string{"c.0": {"dense_0", "ps_1"}})
	h.copied("ps_1", 7, "host")
	h.copied("dense_0", 7, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[7]")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v7")
	got := h.facts()
	if !slices.Contains(got, `failed (the model server refuses the configuration: sub-model "dense_0" is not served here) m:dense_0/7`) ||
		slices.ContainsFunc(got, func(f string) bool {
			return strings.HasPrefix(f, "failed") && strings.HasSuffix(f, "m:ps_1/7")
		}) {
		t.Errorf("facts %q", got)
	}
}

// Where that was not the reason, the rest is told as well.
func TestRefusedForAnotherReason(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	f.mu.Lock()
	f.refuse = status.Error(codes.InvalidArgument, "not that")
	f.mu.Unlock()
	h.plan(7, map[string][]string{"c.0": {"dense_0", "ps_1"}})
	h.copied("ps_1", 7, "host")
	h.copied("dense_0", 7, "host")
	wait.Until(h.t, "both are told", func() error {
		got := h.facts()
		for _, name := range []string{"dense_0", "ps_1"} {
			if !slices.Contains(got, "failed (the model server refuses the configuration: not that) m:"+name+"/7") {
				return fmt.Errorf("%q", got)
			}
		}
		return nil
	})
}

func TestFailuresAreTold(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"ps_1"}})
	h.copied("ps_1", 7, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[7]")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_END, "no such table")
	h.wantReplicas("m/ps:1/2 END v7")
	h.wantFacts("started 1001", "loading m:ps_1/7", "failed (INTERNAL: no such table) m:ps_1/7")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantFacts("started 1001", "loading m:ps_1/7", "failed (INTERNAL: no such table) m:ps_1/7", "available m:ps_1/7")

	f.mu.Lock()
	f.refuse = status.Error(codes.InvalidArgument, "not that")
	f.mu.Unlock()
	h.plan(7, map[string][]string{"c.0": {"ps_1", "entry"}})
	h.copied("entry", 7, "host")
	wait.Until(h.t, "refusal", func() error {
		if got := h.facts(); !slices.Contains(got, "failed (the model server refuses the configuration: not that) m:entry/7") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

func TestServerThatDoesNotStart(t *testing.T) {
	h := newHarness(t, func(h *harness) { h.startErr = errors.New("no such file") })
	h.wantFacts("exited 0 0 it did not start: no such file")
	h.mu.Lock()
	if len(h.beats) > 0 {
		t.Errorf("heartbeats before there is a server: %v", h.beats)
	}
	h.mu.Unlock()
	wait.Until(h.t, "the role says so", func() error {
		if got := h.health.Summary(); !strings.Contains(got, "start of the model server: it has ended again and again") || !strings.Contains(got, "no such file") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	h.mu.Lock()
	h.startErr = nil
	h.mu.Unlock()
	h.born()
	h.wantFacts("exited 0 0 it did not start: no such file", "started 1001")
	h.wantProblem("")
}

// A registry that does not answer is a problem of this role, but none that a heartbeat
// could tell: once it arrives, there is none.
func TestRegistryThatDoesNotAnswer(t *testing.T) {
	h := newHarness(t)
	h.born()
	h.wantProblem("")
	h.mu.Lock()
	h.deaf = true
	h.mu.Unlock()
	wait.Until(h.t, "the role says so", func() error {
		if got := h.health.Summary(); !strings.Contains(got, "heartbeats: ") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	h.mu.Lock()
	h.deaf = false
	n := len(h.beats)
	h.mu.Unlock()
	wait.Until(h.t, "it is well again", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.beats) == n || h.health.Summary() != "" {
			return errors.New(h.health.Summary())
		}
		return nil
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hb := range h.beats {
		if p := hb.GetContainer().GetProblem(); p != "" {
			t.Fatalf("a heartbeat says %q", p)
		}
	}
}
