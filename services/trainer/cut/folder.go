package cut

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/lineage"
)

// ExportsDir is the folder of the exports below the job's.
const ExportsDir = "exported_models"

// checkpointDir is the folder that a job's shards write checkpoint id to, each its own
// below it.
func checkpointDir(dir string, id int64) string {
	return filepath.Join(dir, checkpoint.Name(id))
}

// Swept is what a chief has deleted and no fact says yet. The job's entry in the lineage
// holds a folder until the next checkpoint says that it is gone; a chief that dies before
// leaves that to the next one, which finds nothing to delete.
type Swept struct{ Checkpoints, Exports []int64 } // ascending

// Told forgets what facts have said by now.
func (w *Swept) Told(j lineage.Job) {
	known := map[int64]bool{}
	for _, c := range j.Checkpoints {
		known[c.V.GetId()] = true
	}
	w.Checkpoints = slices.DeleteFunc(slices.Clone(w.Checkpoints), func(id int64) bool { return !known[id] })
	clear(known)
	for _, e := range j.Exports {
		known[e.V.GetVersion()] = true
	}
	w.Exports = slices.DeleteFunc(slices.Clone(w.Exports), func(v int64) bool { return !known[v] })
}

// Folder is where a job's checkpoints and exports lie.
type Folder struct {
	Dir    string
	Keep   int // how many of each stay
	Shards int
	Log    *slog.Logger
}

// Sweep deletes checkpoints and exports beyond the newest of each, except those that are exempt,
// which do not count, and exports whose version is named; of checkpoints, those of timelines that were left go first. What no
// fact names is left alone: it may be somebody's, or the next cut. Failing to delete costs
// space, so it is only logged.
func (f Folder) Sweep(j lineage.Job, named map[int64]bool, done *Swept) {
	err := durable.MkdirAll(f.Dir, 0o755) // a chief that is new on its machine has written nothing there, and shards have
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(f.Dir)
	}
	if err != nil {
		f.Log.Warn("old checkpoints cannot be deleted", "dir", f.Dir, "err", err)
		return
	}
	defer root.Close()
	checkpoints := slices.DeleteFunc(append(j.Restorable(), j.Left()...), func(c *training.Checkpoint) bool { return j.Exempt(c.GetId()) })
	for _, c := range checkpoints[min(f.Keep, len(checkpoints)):] {
		if c.GetDir() != f.Dir || slices.Contains(done.Checkpoints, c.GetId()) {
			continue
		}
		if f.remove(root, checkpoint.InfoName(c.GetId())) && f.remove(root, checkpointDir("", c.GetId())) {
			done.Checkpoints = append(done.Checkpoints, c.GetId())
		}
	}
	slices.Sort(done.Checkpoints)
	exported := filepath.Join(f.Dir, ExportsDir)
	exports := slices.DeleteFunc(slices.Clone(j.Exports), func(e events.JSON[*training.ModelExported]) bool { return j.Exempt(e.V.GetVersion()) })
	for n := len(exports) - f.Keep; n > 0; n-- {
		e := exports[n-1].V
		if e.GetModelDir() != exported || named[e.GetVersion()] || slices.Contains(done.Exports, e.GetVersion()) {
			continue
		}
		if f.removeExport(root, e.GetSubModels(), e.GetVersion()) {
			done.Exports = append(done.Exports, e.GetVersion())
		}
	}
	slices.Sort(done.Exports)
	done.Exports = slices.Compact(done.Exports)
}

func (f Folder) removeExport(root *os.Root, subs []string, version int64) (gone bool) {
	gone = true
	for _, sub := range subs {
		if sub != filepath.Base(sub) || !filepath.IsLocal(sub) {
			f.Log.Warn("an export names a sub-model that is no folder's name; it is left alone", "sub_model", sub, "version", version)
			continue
		}
		gone = f.remove(root, filepath.Join(ExportsDir, sub, strconv.FormatInt(version, 10))) && gone
	}
	return gone
}

// Discard deletes what a failed attempt at a checkpoint has left.
func (f Folder) Discard(id int64) {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return // nothing was written
	}
	defer root.Close()
	f.remove(root, checkpoint.InfoName(id))
	f.remove(root, checkpointDir("", id))
	f.removeExport(root, subModels(f.Shards), id)
}

// subModels are the parts of an export.
func subModels(shards int) []string {
	subs := []string{"entry"}
	for i := range shards {
		subs = append(subs, "ps_"+strconv.Itoa(i))
	}
	return subs
}

// remove says whether nothing is left of the folder.
func (f Folder) remove(root *os.Root, dir string) bool {
	err := durable.RemoveAll(root, dir)
	if err != nil {
		f.Log.Warn("an old checkpoint could not be deleted", "dir", dir, "err", err)
	}
	return err == nil
}
