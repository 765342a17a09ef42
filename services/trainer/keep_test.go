package trainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/cut"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

// TestSweepStaysInItsFolder: whatever a fact names as a sub-model, nothing outside the
// exports of the job is deleted.
func TestSweepStaysInItsFolder(t *testing.T) {
	w := newWorld(t, 1, 1)
	cfg := w.config("a", 0)
	cfg.Keep = 1
	models, outside := filepath.Join(w.dir, cut.ExportsDir), t.TempDir()
	inside := filepath.Join(w.dir, "notes")
	strangers := []string{filepath.Join(outside, "16"), filepath.Join(inside, "16"), filepath.Join(w.dir, "16"), filepath.Join(models, "deep", "er", "16")}
	for _, dir := range strangers {
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
	for _, sub := range []string{away, "../notes", "link", "..", "deep/er"} {
		w.append(jobSubject(), &training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{Version: 16, ModelDir: models, SubModels: []string{sub}}}})
	}
	a := w.run(cfg)
	for range 3 {
		w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) > 0 })
		if _, err := w.command("checkpoint", `{"export":true}`); err != nil {
			t.Fatal(err)
		}
	}
	a.stop(t)
	for _, dir := range strangers {
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
	entry := filepath.Join(w.dir, cut.ExportsDir, "entry")
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
		c := s.chief().Term(1)
		wg.Go(func() {
			defer stop()
			<-s.lineage.Ready()
			for range 5 {
				id, err := c.Claim(ctx, requests.Request{})
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

// What of a job's folder is deleted, and what stays whoever it belongs to.
func TestWhatASweepDeletes(t *testing.T) {
	w := busOnly(t)
	cfg := w.alone()
	cfg.Keep = 2
	s := w.view(cfg)
	elsewhere := t.TempDir()
	models := filepath.Join(w.dir, cut.ExportsDir)
	var j lineage.Job
	for id := int64(1); id <= 6; id++ {
		dir, exported := w.dir, models
		if id == 2 { // by a job of another folder, under this name
			dir, exported = elsewhere, elsewhere
		}
		j.Checkpoints = append(j.Checkpoints, events.JSON[*training.Checkpoint]{V: &training.Checkpoint{Id: id, Dir: dir}})
		j.Exports = append(j.Exports, events.JSON[*training.ModelExported]{V: &training.ModelExported{Version: id, ModelDir: exported, SubModels: []string{"entry", "ps_0"}}})
		for _, dir := range []string{filepath.Join(w.dir, fmt.Sprint("model.ckpt-", id)), filepath.Join(models, "entry", fmt.Sprint(id)), filepath.Join(models, "ps_0", fmt.Sprint(id))} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.append(events.Join(bzid, "model", "movies"), &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{
		ModelName: "movies", ModelDir: models + "/", Version: 3, NumShard: 1}}}})
	part := func(sub string) string { return filepath.Join(models, sub, "4") }
	w.append(events.Join(bzid, "publish", "movies"), &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{
		ModelName: "movies", ModelDir: models, Version: 4, NumPs: 1, Job: theJob, Cause: 1,
		Assignments: []*publish.Assignment{{Container: "c0", SubModels: map[string]string{"entry": part("entry"), "ps_0": part("ps_0")}}},
	}}})
	last, err := w.b.Log().Last(t.Context())
	if err == nil {
		err = errors.Join(s.catalog.Wait(t.Context(), last), s.plan.Wait(t.Context(), last))
	}
	if err != nil {
		t.Fatal(err)
	}
	there := func(dir string) string {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range all {
			names = append(names, strings.TrimPrefix(e.Name(), "model.ckpt-"))
		}
		return strings.Join(names, " ")
	}
	done := cut.Swept{Checkpoints: []int64{3}} // no fact says it yet
	s.chief().Sweep(j, &done)
	for dir, want := range map[string]string{w.dir: cut.ExportsDir + " 2 3 5 6", filepath.Join(models, "entry"): "2 3 4 5 6", filepath.Join(models, "ps_0"): "2 3 4 5 6"} {
		if got := there(dir); got != want {
			t.Errorf("in %s there are %q, want %q", dir, got, want)
		}
	}
	if fmt.Sprint(done) != "{[1 3 4] [1]}" {
		t.Errorf("swept %v", done)
	}
	again := done
	if s.chief().Sweep(j, &again); fmt.Sprint(again) != fmt.Sprint(done) {
		t.Errorf("swept once more: %v", again)
	}
	// The next checkpoint says so; then it is forgotten.
	known := j
	known.Checkpoints, known.Exports = j.Checkpoints[3:], j.Exports[1:]
	if done.Told(known); fmt.Sprint(done) != "{[4] []}" {
		t.Errorf("told, %v is left to tell", done)
	}
	few := lineage.Job{Checkpoints: j.Checkpoints[4:], Exports: j.Exports[4:]}
	done = cut.Swept{}
	if s.chief().Sweep(few, &done); len(done.Checkpoints)+len(done.Exports) != 0 {
		t.Errorf("of as many as are kept %v was deleted", done)
	}
}

// Checkpoints of a timeline that the job has left go first.
func TestTimelinesThatWereLeftAreSweptFirst(t *testing.T) {
	w := busOnly(t)
	cfg := w.alone()
	cfg.Keep = 2
	s := w.view(cfg)
	j := lineage.Job{Restored: lineage.Restored{Checkpoint: 1, Before: 3, Seq: 9}}
	for id := int64(1); id <= 4; id++ {
		j.Checkpoints = append(j.Checkpoints, events.JSON[*training.Checkpoint]{V: &training.Checkpoint{Id: id, Dir: w.dir}})
	}
	var done cut.Swept
	if s.chief().Sweep(j, &done); fmt.Sprint(done.Checkpoints) != "[2 3]" {
		t.Errorf("swept %v, want 2 and 3: 1 and 4 are of the timeline", done.Checkpoints)
	}
	// A folder that is not there is none to delete.
	s.cfg.Dir = filepath.Join(w.dir, "none")
	if s.chief().Sweep(j, &cut.Swept{}); len(done.Checkpoints) != 2 {
		t.Error("what is not there was swept")
	}
	s.chief().Folder().Discard(1)
}
