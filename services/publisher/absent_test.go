package publisher_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/publisher"
)

// An export on another host is planned, followed and weighed by what its job's facts tell of it, also
// where a part of its folder is here: what each of them has is its own shards' disk.
func TestPlansAnExportElsewhere(t *testing.T) {
	t.Run("nothing is here", func(t *testing.T) { plansElsewhere(t, "/on/another/host/exported_models") })
	for _, here := range [][]string{{"ps_0/3", "ps_0/4"}, {"entry/3", "ps_0/4"}, {"entry/3", "ps_0/3"}} {
		t.Run(strings.Join(here, " and "), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "exported_models")
			for _, sub := range here {
				if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, sub, "rows"), make([]byte, 300), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			plansElsewhere(t, dir)
		})
	}
}

func plansElsewhere(t *testing.T, dir string) {
	b := mem.New()
	s, err := publisher.New(publisher.Config{Debounce: time.Millisecond, Recheck: 5 * time.Millisecond}, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	exported := func(version int64) {
		_, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, "training", "j"), Expect: bus.Any,
			Event: &training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{Version: version, ModelDir: dir, SubModels: []string{"entry", "ps_0"},
				Parts: map[string]*training.ExportedPart{"entry": {Export: strings.Repeat("ab", 32), Bytes: 7}, "ps_0": {Export: strings.Repeat("cd", 32), Bytes: uint64(100 * version)}}}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	exported(3)
	store(t, b, up("e", "entry", -1), up("p", "ps", 0))
	follows := load("m", dir, 3, 1, 1)
	follows.Event.(*model.Event).GetLoadAccepted().Load.Follow = true
	seq := store(t, b, follows)
	for version := int64(3); version <= 4; version++ {
		p := controltest.Next(t, b, seq, func(r events.Recorded) bool {
			e, ok := r.Event.(*publish.Event)
			return ok && e.GetPlanned().GetVersion() == version
		}).Event.(*publish.Event).GetPlanned()
		if got := p.GetAssignments()[1].GetBytes()["ps_0"]; got != uint64(100*version) {
			t.Errorf("version %d is planned with %d bytes", version, got)
		}
		exported(version + 1)
	}
}
