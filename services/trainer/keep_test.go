package trainer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services"
)

// TestSweepStaysInItsFolder: whatever a fact names as a sub-model, nothing outside the
// exports of the job is deleted.
func TestSweepStaysInItsFolder(t *testing.T) {
	w := newWorld(t, 1, 1)
	cfg := w.config("a", 0)
	cfg.Keep = 1
	models, outside := filepath.Join(w.dir, exportsDir), t.TempDir()
	inside := filepath.Join(w.dir, "notes")
	for _, dir := range []string{filepath.Join(outside, "16"), filepath.Join(inside, "16"), models} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(models, "link")); err != nil {
		t.Fatal(err)
	}
	away, err := filepath.Rel(models, outside)
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{away, "../notes", "link", ".."} {
		w.append(jobSubject(), &training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{Version: 16, ModelDir: models, SubModels: []string{sub}}}})
	}
	a := w.run(cfg)
	for range 3 {
		w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) > 0 })
		if _, err := w.b.Commands().Call(t.Context(), bzid, "trainer."+theJob+".checkpoint", []byte(`{"export":true}`)); err != nil {
			t.Fatal(err)
		}
	}
	a.stop(t)
	for _, dir := range []string{filepath.Join(outside, "16"), filepath.Join(inside, "16")} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a fact deleted what is none of the job's exports: %v", err)
		}
	}
}

// TestAnIdIsWrittenOnce: what an attempt wrote whose end nobody could tell is never
// written over. The next chief takes another id.
func TestAnIdIsWrittenOnce(t *testing.T) {
	w := newWorld(t, 1, 1)
	a := w.run(w.config("a", 0))
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	a.stop(t)
	// Its last attempt got as far as a whole export, and not to the fact.
	w.append(jobSubject(), &training.Event{Body: &training.Event_CheckpointStarted{CheckpointStarted: &training.CheckpointStarted{Id: 2}}})
	entry := filepath.Join(w.dir, exportsDir, "entry")
	if err := os.CopyFS(filepath.Join(entry, "2"), os.DirFS(filepath.Join(entry, "1"))); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(entry, "2", "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	b := w.run(w.config("b", 1))
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Reason: "the next", Export: true}}})
	j := w.until("the checkpoint is saved", func(j lineage.Job) bool { return len(j.Exports) >= 2 })
	b.stop(t)
	if id := j.Checkpoints[1].V.GetId(); id != 3 || j.Exports[1].V.GetVersion() != 3 {
		t.Errorf("the next checkpoint is %d and its export %d, want 3", id, j.Exports[1].V.GetVersion())
	}
	if after, err := os.ReadFile(filepath.Join(entry, "2", "manifest.json")); err != nil || string(after) != string(before) {
		t.Errorf("the attempt's export was written over: %v", err)
	}
}

// TestOneIdForOneChief: two chiefs that claim at once get different ids.
func TestOneIdForOneChief(t *testing.T) {
	w := newWorld(t, 1, 1)
	ids := make(chan int64, 20)
	var wg sync.WaitGroup
	for i := range 4 {
		s, err := New(w.config(fmt.Sprint("t", i), i), services.Env{BZID: bzid, Bus: w.b})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		wg.Go(func() { _ = s.lineage.Run(ctx) })
		c := &chief{s: s}
		wg.Go(func() {
			defer stop()
			<-s.lineage.Ready()
			for range 5 {
				id, err := c.claim(ctx, request{})
				if err != nil {
					t.Error(err)
				}
				ids <- id
			}
		})
	}
	wg.Wait()
	close(ids)
	seen := map[int64]bool{}
	for id := range ids {
		if seen[id] || id < 1 || id > 20 {
			t.Errorf("id %d was claimed twice, or out of the line", id)
		}
		seen[id] = true
	}
}
