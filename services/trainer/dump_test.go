package trainer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/trainer/features"
)

// dumps are what trainer a has said that it wrote.
func (w *world) dumps() (all []*training.FeaturesDumped) {
	facts, _ := w.facts(training.TrainerSubject(bzid, theJob, "a"))
	for _, e := range facts {
		if d := e.GetFeaturesDumped(); d != nil {
			all = append(all, d)
		}
	}
	return all
}

// TestDumpFeatures: with the flag each sample that is learnt is in a file, and every file is told of.
func TestDumpFeatures(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.write(500)
	cfg := w.config("a", 0)
	cfg.DumpFeatures, cfg.StopAtEnd, cfg.Batch = true, true, 8
	w.run(cfg).wait(t)
	var batches, samples uint64
	all := w.dumps()
	for _, d := range all {
		info, err := os.Stat(d.GetPath())
		if err != nil || uint64(info.Size()) != d.GetBytes() || d.GetDump() != 0 || d.GetTrainer() != "a" || !strings.HasPrefix(filepath.Base(d.GetPath()), "chief_") {
			t.Errorf("%v: %v", d, err)
		}
		batches, samples = batches+uint64(d.GetBatches()), samples+d.GetSamples()
	}
	if samples != 900 || len(all) < 2 { // a tenth is broken
		t.Errorf("%d samples in %d batches of %d files, 900 were learnt", samples, batches, len(all))
	}
	files, err := filepath.Glob(filepath.Join(w.config("a", 0).Dir, features.Folder, "*"))
	if err != nil || len(files) != len(all) {
		t.Errorf("%d files, %d were told of, %v", len(files), len(all), err)
	}
}

// TestDumpOnCommand: so many batches are written when that is asked for, and no more.
func TestDumpOnCommand(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(100)
	a := w.run(w.config("a", 0))
	w.learnt(0, 100)
	var refused *bus.CommandError
	if _, err := w.command("dump", `{}`); !errors.As(err, &refused) || refused.Code != bus.CodeInvalid {
		t.Errorf("a dump of nothing: %v", err)
	}
	if n := len(w.dumps()); n != 0 {
		t.Fatalf("%d files before anybody asked", n)
	}
	if _, err := w.command("dump", `{"batches":3,"reason":"a look"}`); err != nil {
		t.Fatal(err)
	}
	for at := int64(200); len(w.dumps()) == 0; at += 100 {
		w.write(100)
		w.learnt(0, at)
		if at > 100_000 {
			t.Fatal("no file is told of")
		}
	}
	w.write(100)
	wait.For(t, "one file of three batches", func() bool {
		all := w.dumps()
		return len(all) == 1 && all[0].GetBatches() == 3 && all[0].GetDump() > 0
	})
	a.stop(t)
	if all := w.dumps(); len(all) != 1 {
		t.Errorf("%d files, three batches were asked for", len(all))
	}
}
