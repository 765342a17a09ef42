package cut

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// An export is gone once all of its parts are.
func TestAnExportIsGoneWhole(t *testing.T) {
	dir := t.TempDir()
	f := Folder{Dir: dir, Shards: 1, Log: slog.New(slog.DiscardHandler)}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	part := func(sub string) string { return filepath.Join(dir, ExportsDir, sub, "7") }
	for _, sub := range []string{"entry", "ps_0"} {
		if err := os.MkdirAll(filepath.Join(part(sub), "deep"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if !f.removeExport(root, subModels(1), 7) {
		t.Error("it is gone, and that is not said")
	}
	for _, sub := range []string{"entry", "ps_0"} { // not under another name either
		if left, err := os.ReadDir(filepath.Dir(part(sub))); err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", sub, left, err)
		}
	}
	if !f.removeExport(root, subModels(1), 7) {
		t.Error("what is gone is not gone")
	}
	for _, sub := range []string{"entry", "ps_0"} {
		if _, err := os.Stat(part(sub)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", sub, err)
		}
		left, err := os.ReadDir(filepath.Dir(part(sub)))
		if err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", sub, left, err)
		}
	}
	// One part that stays is enough, whichever.
	for _, stuck := range []string{"entry", "ps_0"} {
		for _, sub := range []string{"entry", "ps_0"} {
			if err := os.MkdirAll(part(sub), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		away, err := filepath.Rel(filepath.Join(dir, ExportsDir), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, ExportsDir, stuck)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(away, filepath.Join(dir, ExportsDir, stuck)); err != nil { // leads out of the folder
			t.Fatal(err)
		}
		if f.removeExport(root, subModels(1), 7) {
			t.Errorf("%s stays, and the export is said to be gone", stuck)
		}
		if err := os.Remove(filepath.Join(dir, ExportsDir, stuck)); err != nil {
			t.Fatal(err)
		}
	}
}

// jobFolder is a folder with checkpoints 1 to n and as many exports of one shard, and the job as the log has it.
func jobFolder(t *testing.T, n int64) (f Folder, j lineage.Job, log *trainertest.Lines) {
	t.Helper()
	log = &trainertest.Lines{}
	f = Folder{Dir: t.TempDir(), Keep: 2, Shards: 1, Log: log.Logger()}
	exported := filepath.Join(f.Dir, ExportsDir)
	for id := int64(1); id <= n; id++ {
		j.Checkpoints = append(j.Checkpoints, events.JSON[*training.Checkpoint]{V: &training.Checkpoint{Id: id, Dir: f.Dir}})
		j.Exports = append(j.Exports, events.JSON[*training.ModelExported]{V: &training.ModelExported{Version: id, ModelDir: exported, SubModels: subModels(1)}})
		for _, dir := range f.parts(id) {
			if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(f.Dir, checkpoint.InfoName(id)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f, j, log
}

// parts are the folders of checkpoint id, and of the parts of its export.
func (f Folder) parts(id int64) []string {
	dirs := []string{checkpointDir(f.Dir, id)}
	for _, sub := range subModels(f.Shards) {
		dirs = append(dirs, filepath.Join(f.Dir, ExportsDir, sub, strconv.FormatInt(id, 10)))
	}
	return dirs
}

// stays fails unless of each folder of the ids named that is left which is to be left.
func (f Folder) stays(t *testing.T, checkpoints, exports map[int64]bool) {
	t.Helper()
	for id, want := range checkpoints {
		for _, path := range []string{f.parts(id)[0], filepath.Join(f.Dir, checkpoint.InfoName(id))} {
			if _, err := os.Stat(path); (err == nil) != want {
				t.Errorf("%s of checkpoint %d stays: %v, want %v", filepath.Base(path), id, err == nil, want)
			}
		}
	}
	for id, want := range exports {
		for _, dir := range f.parts(id)[1:] {
			if _, err := os.Stat(dir); (err == nil) != want {
				t.Errorf("%s of export %d stays: %v, want %v", filepath.Base(filepath.Dir(dir)), id, err == nil, want)
			}
		}
	}
}

// A sweep deletes all but the newest: not what a fact says lies in another folder, though there is one of that
// name here, not exports that are named, and nothing a second time that it has deleted before.
func TestWhatASweepLeaves(t *testing.T) {
	f, j, log := jobFolder(t, 6)
	elsewhere := t.TempDir()
	j.Checkpoints[1].V.Dir, j.Exports[1].V.ModelDir = elsewhere, elsewhere
	done := Swept{Checkpoints: []int64{3}, Exports: []int64{3}}
	f.Sweep(j, map[int64]bool{4: true}, &done)
	f.stays(t, map[int64]bool{1: false, 2: true, 3: true, 4: false, 5: true, 6: true}, map[int64]bool{1: false, 2: true, 3: true, 4: true, 5: true, 6: true})
	if !slices.Equal(done.Checkpoints, []int64{1, 3, 4}) || !slices.Equal(done.Exports, []int64{1, 3}) {
		t.Errorf("deleted are %+v", done)
	}
	if got := log.All(); len(got) != 0 {
		t.Errorf("a sweep that goes well logs %q", got)
	}
	moved := f // a chief on another machine, where nothing lies yet
	moved.Dir = filepath.Join(f.Dir, "new", "job")
	for i := range j.Checkpoints {
		j.Checkpoints[i].V.Dir = moved.Dir
	}
	done = Swept{}
	if moved.Sweep(j, nil, &done); len(log.All()) != 0 || !slices.Equal(done.Checkpoints, []int64{1, 2, 3, 4}) {
		t.Errorf("where nothing lies %v are said to be gone, and it logs %q", done.Checkpoints, log.All())
	}
	moved.Dir = filepath.Join(f.Dir, checkpoint.InfoName[int64](6), "job") // below a file
	if moved.Sweep(j, nil, &done); len(log.All()) != 1 {
		t.Errorf("of a folder that cannot be it logs %q", log.All())
	}
}

// What could not be deleted is logged, and tried again by the next sweep.
func TestASweepThatFailsIsLogged(t *testing.T) {
	f, j, log := jobFolder(t, 3)
	hidden := filepath.Join(f.Dir, ".deleted-model.ckpt-1")
	if err := os.Symlink(t.TempDir(), hidden); err != nil {
		t.Fatal(err)
	}
	models := filepath.Join(f.Dir, ExportsDir)
	if err := os.Rename(models, filepath.Join(f.Dir, "aside")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), models); err != nil { // leads out of the folder
		t.Fatal(err)
	}
	var done Swept
	f.Sweep(j, nil, &done)
	if got := log.All(); len(got) != 2 || !strings.Contains(got[0], "could not be deleted") || len(done.Exports) != 0 || !slices.Equal(done.Checkpoints, []int64{1}) {
		t.Errorf("logged %q, deleted %+v", got, done)
	}
}

// A fact may name any text as a sub-model: what is no name of a folder beside the others is left alone.
func TestSubModelsThatAreNoFolders(t *testing.T) {
	f, _, log := jobFolder(t, 0)
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, sub := range []string{"..", "deep/er", "../notes"} {
		dir := filepath.Join(f.Dir, ExportsDir, sub, "7")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		f.removeExport(root, []string{sub}, 7)
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("sub-model %q: %v", sub, err)
		}
	}
	if got := log.All(); len(got) != 3 {
		t.Errorf("logged %q", got)
	}
}

// What a failed attempt has left goes, and nothing else; where nothing was written there is nothing to delete.
func TestWhatIsLeftOfAnAttemptIsDiscarded(t *testing.T) {
	f, _, log := jobFolder(t, 3)
	f.Discard(2)
	f.stays(t, map[int64]bool{1: true, 2: false, 3: true}, map[int64]bool{1: true, 2: false, 3: true})
	f.Dir = filepath.Join(f.Dir, "nowhere")
	f.Discard(2)
	if got := log.All(); len(got) != 0 {
		t.Errorf("logged %q", got)
	}
}

// What is exempt stays, does not count as one of those that are kept, and a sweep that was killed on its
// way, after it had hidden a folder or had emptied half of one, is gone through again.
func TestExemptCheckpointsStay(t *testing.T) {
	f, j, log := jobFolder(t, 6)
	j.Kept = []int64{1, 5}
	if err := os.Rename(checkpointDir(f.Dir, 2), filepath.Join(f.Dir, ".deleted-model.ckpt-2")); err != nil {
		t.Fatal(err)
	}
	var done Swept
	f.Sweep(j, nil, &done)
	want := map[int64]bool{1: true, 2: false, 3: false, 4: true, 5: true, 6: true}
	f.stays(t, want, want)
	if !slices.Equal(done.Checkpoints, []int64{2, 3}) || !slices.Equal(done.Exports, []int64{2, 3}) {
		t.Errorf("deleted are %+v", done)
	}
	if _, err := os.Stat(filepath.Join(f.Dir, ".deleted-model.ckpt-2")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was hidden is still there: %v", err)
	}
	j.Kept = nil // released
	f.Sweep(j, nil, &done)
	f.stays(t, map[int64]bool{1: false, 4: false, 5: true, 6: true}, map[int64]bool{1: false, 4: false, 5: true, 6: true})
	if got := log.All(); len(got) != 0 {
		t.Errorf("sweeps that go well log %q", got)
	}
}
