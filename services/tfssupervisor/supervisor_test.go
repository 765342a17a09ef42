package tfssupervisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/tfssupervisor"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"
)

func TestLoadsWhatIsPlannedAndCopied(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"entry", "ps_1"}, "other": {"ps_0"}})
	h.copied("ps_1", 7, "elsewhere")
	h.copied("ps_0", 7, "host")
	h.copied("ps_1", 7, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[7]")
	h.wantReplicas("m/ps:1/2 START v7")
	h.copied("entry", 7, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[7]", "m:ps_1@/copies/m/ps_1/[7]")

	f.set("m:ps_1", 7, apis.ModelVersionStatus_LOADING, "")
	f.set("m:entry", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 LOADING v7")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 AVAILABLE v7")

	h.mu.Lock()
	hb := h.beats[len(h.beats)-1]
	h.mu.Unlock()
	c := hb.GetContainer()
	if c.GetId() != "c.0" || c.GetKind() != "serving" || c.GetShard() != 1 || c.GetReplica() != 2 || c.GetCluster() != "cl" || c.GetIdc() != "dc" ||
		c.GetGrpcAddress() != f.ln.Addr().String() || c.GetRowsAddress() != "127.0.0.1:7000" || hb.GetResource().GetMemory() != 1<<30 {
		t.Errorf("heartbeat %v", hb)
	}
	if r := hb.GetReplicas()[1]; r.GetRowsAddress() != "127.0.0.1:7000" || r.GetGrpcAddress() != f.ln.Addr().String() || r.GetContainer() != "c.0" {
		t.Errorf("replica %v", r)
	}

	// A new version: the old one answers until the new one does.
	h.plan(8, map[string][]string{"c.0": {"entry", "ps_1"}})
	h.copied("entry", 8, "host")
	h.copied("ps_1", 8, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[8]", "m:ps_1@/copies/m/ps_1/[8]")
	f.set("m:ps_1", 8, apis.ModelVersionStatus_LOADING, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 AVAILABLE v7")
	f.set("m:ps_1", 8, apis.ModelVersionStatus_AVAILABLE, "")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_END, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 AVAILABLE v8")

	// Withdrawn: nothing is left.
	h.append("publish", "m", &publish.Event{Body: &publish.Event_Withdrawn{Withdrawn: &publish.Withdrawn{ModelName: "m", Reason: "enough", Cause: 2}}})
	h.wantConfig(f)
	for _, name := range []string{"m:entry", "m:ps_1"} {
		for _, v := range []int64{7, 8} {
			f.set(name, v, apis.ModelVersionStatus_END, "")
		}
	}
	h.wantReplicas()

	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	if last := h.beats[len(h.beats)-1]; !last.GetLeaving() {
		t.Errorf("last heartbeat %v, want it to leave", last)
	}
	h.mu.Unlock()
	got := h.facts()
	index := func(f string) int { return slices.Index(got, f) }
	for _, order := range [][]string{
		{"started 1001", "loading m:ps_1/7", "available m:ps_1/7", "unloading m:ps_1/7", "loading m:ps_1/8", "available m:ps_1/8", "unloading m:ps_1/8", "exited 1001 0 the supervisor is stopping"},
		{"loading m:entry/7", "available m:entry/7", "unloading m:entry/7", "loading m:entry/8"},
	} {
		for i, f := range order {
			if index(f) < 0 || i > 0 && index(f) < index(order[i-1]) {
				t.Errorf("%q is missing or out of order in\n%q", f, got)
			}
		}
	}
}

// A plan names the next version before model-sync has copied it: until then nothing
// that is served may go.
func TestOldVersionStaysWhileTheNewOneIsCopied(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(1, map[string][]string{"c.0": {"entry", "ps_1"}})
	h.copied("entry", 1, "host")
	h.copied("ps_1", 1, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[1]", "m:ps_1@/copies/m/ps_1/[1]")
	f.set("m:entry", 1, apis.ModelVersionStatus_AVAILABLE, "")
	f.set("m:ps_1", 1, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v1", "m/ps:1/2 AVAILABLE v1")

	h.plan(2, map[string][]string{"c.0": {"entry", "ps_1"}})
	h.copied("ps_1", 2, "host") // the entry's copy takes longer
	h.wantConfig(f, "m:entry@/copies/m/entry/[1]", "m:ps_1@/copies/m/ps_1/[2]")
	h.copied("entry", 2, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[2]", "m:ps_1@/copies/m/ps_1/[2]")
	h.wantReplicas("m/entry:0/2 AVAILABLE v1", "m/ps:1/2 AVAILABLE v1")

	h.mu.Lock()
	defer h.mu.Unlock()
	served := false
	for _, hb := range h.beats {
		n := 0
		for _, r := range hb.GetReplicas() {
			if r.GetStat() == replica.State_AVAILABLE {
				n++
			}
		}
		if served && n < 2 {
			t.Fatalf("a heartbeat after both were available says %v", hb.GetReplicas())
		}
		served = served || n == 2
	}
}

// The same number from another export is another model: a server that has the old one
// loaded would keep it, so it has to unload it first.
func TestSameVersionOfAnotherExportIsLoadedAnew(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(1, map[string][]string{"c.0": {"ps_1"}})
	h.copiedAs("ps_1", 1, "host", "first")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[1]")
	f.set("m:ps_1", 1, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v1")

	h.copiedAs("ps_1", 1, "host", "second")
	h.wantConfig(f)
	f.set("m:ps_1", 1, apis.ModelVersionStatus_END, "")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[1]")
	f.set("m:ps_1", 1, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v1")
	h.wantFacts("started 1001", "loading m:ps_1/1", "available m:ps_1/1", "unloading m:ps_1/1", "loading m:ps_1/1", "available m:ps_1/1")

	// A copy of something else than what is planned is not loaded.
	h.append("publish", "m", &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{ModelName: "m", ModelDir: "/others", Version: 2, NumPs: 2, Cause: 1,
		Assignments: []*publish.Assignment{{Container: "c.0", Shard: 1, Replica: 2, SubModels: map[string]string{"ps_1": "/others/ps_1/2"}}}}}})
	h.copied("ps_1", 2, "host") // of /exports
	h.plan(3, map[string][]string{"c.0": {"ps_1"}})
	h.copied("ps_1", 3, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[3]")
	if got := h.facts(); slices.Contains(got, "loading m:ps_1/2") {
		t.Errorf("the copy of another folder was loaded: %q", got)
	}
}

// What happens in the log does not make the supervisor ask the server more often.
func TestUnrelatedEventsAskTheServerNothing(t *testing.T) {
	h := newHarness(t, func(h *harness) { h.change = func(c *tfssupervisor.Config) { c.Poll = time.Hour } })
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"ps_1"}})
	h.copied("ps_1", 7, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[7]")
	for i := range 2000 {
		h.append("publish", "other", &publish.Event{Body: &publish.Event_PlanFailed{PlanFailed: &publish.PlanFailed{ModelName: "other", Reason: fmt.Sprint(i), Cause: 1}}})
	}
	h.plan(8, map[string][]string{"c.0": {"ps_1"}}) // once this is known, all of that was
	h.copied("ps_1", 8, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[8]")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked > 4 { // at the start, and as each configuration was answered
		t.Errorf("asked %d times", f.asked)
	}
}

func TestStopStopsTheServer(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.wantFacts("started 1001", "exited 1001 0 the supervisor is stopping")
	f.once.Do(func() { t.Error("the server was not stopped") })
}

func TestConfigRefused(t *testing.T) {
	var cfg tfssupervisor.Config
	if err := cfg.Validate(); err == nil {
		t.Error("a configuration without a container passes")
	}
	cfg.Container, cfg.Shard = "c", -2
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "--shard") {
		t.Errorf("shard -2: %v", err)
	}
	if _, err := tfssupervisor.New(tfssupervisor.Config{Container: "c"}, services.Env{Bus: mem.New()}, nil); err == nil {
		t.Error("no launcher passes")
	}
}

// A server that reads its configuration from a file again and again finds there what it was told.
func TestConfigFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "models.cfg")
	h := newHarness(t, func(h *harness) { h.change = func(c *tfssupervisor.Config) { c.ConfigFile = path } })
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"entry", "ps_1"}})
	h.copied("entry", 7, "host")
	h.copied("ps_1", 7, "host")
	wait.For(t, "both are configured", func() bool { return len(f.configured()) == 2 })
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c config_go_proto.ModelServerConfig
	if err := prototext.Unmarshal(raw, &c); err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	models, err := tfserving.Models(&c)
	if err != nil || len(models) != 2 || models[0].Name != "m:entry" || models[1].BasePath != "/copies/m/ps_1" {
		t.Errorf("%+v, %v", models, err)
	}
}
