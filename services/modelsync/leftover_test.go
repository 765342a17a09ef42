package modelsync_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/modelcopy/modelcopytest"
	"github.com/monolith-go/monolith/services/modelsync"
)

// saved says that a job has a checkpoint and an export in dir, and has deleted others.
func (c *cluster) saved(job, dir string, id int64, removed ...int64) {
	c.t.Helper()
	c.state("training", job, &training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{
		Checkpoint:         &training.Checkpoint{Id: id, Dir: dir, Shards: []*training.ShardFile{{Path: fmt.Sprintf("model.ckpt-%d/ps_0", id), Hash: fmt.Sprintf("%064d", id)}}},
		RemovedCheckpoints: removed, RemovedExports: removed}}})
	c.state("training", job, &training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{
		Version: id, ModelDir: filepath.Join(dir, "exported_models"), SubModels: []string{"entry", "ps_0"}}}})
}

// TestWhatAJobHasLeftIsDeleted: of what lies in the folders that a host hands out, exactly that goes which the job whose
// folder it is has deleted where it runs.
func TestWhatAJobHasLeftIsDeleted(t *testing.T) {
	c := newCluster(t, "a")
	base := t.TempDir()
	srv := filepath.Join(base, "srv")
	movies, shared, outside := filepath.Join(srv, "movies"), filepath.Join(srv, "shared"), filepath.Join(base, "outside")
	for _, dir := range []string{movies, shared, outside} {
		for id := 1; id <= 9; id++ {
			modelcopytest.Write(t, filepath.Join(dir, fmt.Sprintf("model.ckpt-%d", id), "ps_1", "manifest.json"), "{}")
			modelcopytest.Write(t, filepath.Join(dir, "exported_models", "entry", fmt.Sprint(id), "manifest.json"), "{}")
			modelcopytest.Write(t, filepath.Join(dir, fmt.Sprintf("ckpt.info-%d", id)), "")
		}
		modelcopytest.Write(t, filepath.Join(dir, "model.ckpt-01", "ps_1", "f"), "a stranger's")
	}
	c.saved("j", movies, 1)
	c.saved("j", movies, 2)
	c.saved("j", movies, 3)
	c.saved("j", movies, 5, 1, 3) // there was no checkpoint 4
	c.saved("k", shared, 1)
	c.saved("l", shared, 2)
	c.saved("l", shared, 3, 1, 2)
	c.saved("m", outside, 1)
	c.saved("m", outside, 2, 1)
	stop := c.run("a", func(cfg *modelsync.Config, _ *services.Env) { cfg.Exports = []string{srv} })
	left := func(dir string) (ids []string) {
		for id := 1; id <= 9; id++ {
			there := 0
			for _, name := range []string{fmt.Sprintf("model.ckpt-%d", id), fmt.Sprintf("exported_models/entry/%d", id), fmt.Sprintf("ckpt.info-%d", id)} {
				if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
					there++
				}
			}
			switch there {
			case 0:
			case 3:
				ids = append(ids, fmt.Sprint(id))
			default:
				ids = append(ids, fmt.Sprintf("some of %d", id))
			}
		}
		return ids
	}
	wait.For(t, "what was deleted goes", func() bool { return len(left(movies)) == 7 && len(left(shared)) == 8 })
	stop()
	for dir, want := range map[string][]string{
		movies:  {"2", "4", "5", "6", "7", "8", "9"},
		shared:  {"1", "3", "4", "5", "6", "7", "8", "9"}, // job k has a checkpoint 1 there
		outside: {"1", "2", "3", "4", "5", "6", "7", "8", "9"},
	} {
		if got := left(dir); !slices.Equal(got, want) {
			t.Errorf("in %s is left %v, want %v", filepath.Base(dir), got, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "model.ckpt-01")); err != nil {
			t.Errorf("what nobody numbered so is gone: %v", err)
		}
	}
}
