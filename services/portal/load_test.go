package portal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/compat/modelinfo"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// recorded is an export whose exporter has written down which version is of which step.
func recorded(t *testing.T, steps map[int64]int) string {
	t.Helper()
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("movies"), 2, 1, 5)
	for _, sub := range []string{"entry", "ps_0", "ps_1"} {
		text := ""
		for version, step := range steps {
			text += fmt.Sprintf("entries {\n  export_dir: \"/x/%s/%d\"\n  global_step: %d\n}\n", sub, version, step)
		}
		if err := os.WriteFile(filepath.Join(dir, sub, "ExportSaverListenerState"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A checkpoint chooses the version that was exported at it, the same for whoever lists it.
func TestLoadOfACheckpoint(t *testing.T) {
	b := mem.New()
	start(t, b)
	dir := recorded(t, map[int64]int{1: 100, 5: 200})
	for _, ckpt := range []string{"model.ckpt-100", "model.ckpt-200"} {
		_, _, listed, err := modelinfo.Calculate(dir, ckpt)
		if err != nil {
			t.Fatal(err)
		}
		seq := seqOf(t, controltest.MustCall(t, b, "portal.load", fmt.Sprintf(`{"modelName":"movies","modelDir":%q,"ckpt":%q}`, dir, ckpt)))
		load := controltest.Next(t, b, seq, controltest.Of("loadAccepted")).Event.(*model.Event).GetLoadAccepted().GetLoad()
		if want := map[string]int64{"model.ckpt-100": 1, "model.ckpt-200": 5}[ckpt]; load.GetVersion() != want || listed != want {
			t.Errorf("%s loads version %d and is listed as %d, want %d", ckpt, load.GetVersion(), listed, want)
		}
	}
	_, err := controltest.Call(t, b, "portal.load", fmt.Sprintf(`{"modelName":"movies","modelDir":%q,"ckpt":"model.ckpt"}`, dir))
	refused(t, err, "INVALID", "does not end in its global step")
}

// The original's load commands say nothing of replicas and jobs: they do not take away
// what the load in force has of them.
func TestBareLoadKeepsWhatIsBetter(t *testing.T) {
	b := mem.New()
	start(t, b)
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("movies"), 2, 1, 5)
	first := seqOf(t, controltest.MustCall(t, b, "portal.load", fmt.Sprintf(`{"modelName":"movies","modelDir":%q,"job":"movies","replicas":2,"follow":true}`, dir)))
	again := seqOf(t, controltest.MustCall(t, b, "portal.load", fmt.Sprintf(`{"modelName":"movies","modelDir":%q,"ckpt":"","numShard":-1,"follow":false}`, dir)))
	if again != first {
		t.Errorf("fact %d for a load that is in force since %d\n%s", again, first, controltest.Story(t, b))
	}
	// The same as ZooKeeper's clients ask it, which is always answered by a fact.
	asked := controltest.Publish(t, b, "monolith.test.model.movies.request", fmt.Sprintf(`{"loadRequested":{"load":{"modelName":"movies","modelDir":%q,"numShard":-1}}}`, dir))
	got := controltest.Next(t, b, asked+1, controltest.Of("loadAccepted")).Event.(*model.Event).GetLoadAccepted().GetLoad()
	want := &model.Load{ModelName: "movies", ModelDir: dir, NumShard: 2, Version: 5, Job: "movies", Replicas: 2, Follow: true}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	// Unloaded, it can be loaded in any other way.
	controltest.MustCall(t, b, "portal.unload", `{"modelName":"movies"}`)
	seq := seqOf(t, controltest.MustCall(t, b, "portal.load", fmt.Sprintf(`{"modelName":"movies","modelDir":%q}`, dir)))
	frozen := controltest.Next(t, b, seq, controltest.Of("loadAccepted")).Event.(*model.Event).GetLoadAccepted().GetLoad()
	if frozen.GetJob() != "" || frozen.GetReplicas() != 1 || frozen.GetFollow() {
		t.Errorf("a load after an unload inherits %v", frozen)
	}
}
