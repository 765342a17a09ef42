package portal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// An export on another host is loaded by what its job's facts tell of it, also where a part of its
// folder is here, which may look like a smaller export: what each host has is its own shards' disk.
func TestLoadOfAnExportElsewhere(t *testing.T) {
	t.Run("nothing is here", func(t *testing.T) { loadsElsewhere(t, "/on/another/host/exported_models", "cannot be read") })
	for problem, here := range map[string][]string{
		"does not hold entry/":  {"ps_0/3", "ps_0/4"},
		"ps_0 is missing":       {"entry/3", "ps_1/3"},
		"no version that entry": {"entry/3", "ps_0/4"},
		"call portal.declare":   {"entry/3", "ps_0/3"},
	} {
		t.Run(strings.Join(here, " and "), func(t *testing.T) {
			dir := t.TempDir()
			for _, sub := range here {
				if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			loadsElsewhere(t, dir, problem)
		})
	}
}

func loadsElsewhere(t *testing.T, dir, problem string) {
	b := mem.New()
	start(t, b)
	ask := func(more string) string {
		return fmt.Sprintf(`{"modelName":"movies","modelDir":%q%s}`, dir, more)
	}
	_, err := controltest.Call(t, b, "portal.load", ask(""))
	refused(t, err, "INVALID", problem)
	part := &training.ExportedPart{Export: strings.Repeat("ab", 32), Bytes: 7}
	for version := int64(3); version <= 5; version++ {
		e := &training.ModelExported{Version: version, ModelDir: dir, SubModels: []string{"entry", "ps_0", "ps_1"},
			Parts: map[string]*training.ExportedPart{"entry": part, "ps_0": part, "ps_1": part}}
		if version == 5 {
			delete(e.Parts, "ps_1") // of a shard that does not say what it wrote
		}
		if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, "training", "j"), Expect: bus.Any,
			Event: &training.Event{Body: &training.Event_ModelExported{ModelExported: e}}}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = controltest.Call(t, b, "portal.load", ask("")) // at once: its answer knows what was said before
	refused(t, err, "INVALID", "portal.declare first")
	if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: model.Subject(controltest.BZID, "movies"), Expect: bus.Any,
		Event: &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: controltest.Spec("movies")}}}}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the portal has folded the declaration", func() error {
		_, err := controltest.Call(t, b, "portal.load", ask(`,"replicas":2`))
		return err
	})
	for more, want := range map[string]int64{"": 4, `,"version":"3"`: 3, `,"ckpt":"model.ckpt-3"`: 3} {
		seq := seqOf(t, controltest.MustCall(t, b, "portal.load", ask(more)))
		load := controltest.Next(t, b, seq, controltest.Of("loadAccepted")).Event.(*model.Event).GetLoadAccepted().GetLoad()
		if load.GetVersion() != want || load.GetNumShard() != 2 {
			t.Errorf("%s loads version %d of %d shards, want %d of 2", more, load.GetVersion(), load.GetNumShard(), want)
		}
	}
	for more, want := range map[string]string{`,"version":"5"`: "version 5 is not in every sub-model", `,"ckpt":"model.ckpt-5"`: "no export of model.ckpt-5", `,"ckpt":"x"`: "no export of x"} {
		_, err := controltest.Call(t, b, "portal.load", ask(more))
		refused(t, err, "INVALID", want)
	}
}
