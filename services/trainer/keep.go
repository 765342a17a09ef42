package trainer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
)

const exportsDir = "exported_models"

// swept is what a chief has deleted and no fact says yet. The job's entry in the lineage
// holds a folder until the next checkpoint says that it is gone; a chief that dies before
// leaves that to the next one, which finds nothing to delete.
type swept struct{ checkpoints, exports []int64 } // ascending

// told forgets what facts have said by now.
func (w *swept) told(j lineage.Job) {
	known := map[int64]bool{}
	for _, c := range j.Checkpoints {
		known[c.V.GetId()] = true
	}
	w.checkpoints = slices.DeleteFunc(slices.Clone(w.checkpoints), func(id int64) bool { return !known[id] })
	clear(known)
	for _, e := range j.Exports {
		known[e.V.GetVersion()] = true
	}
	w.exports = slices.DeleteFunc(slices.Clone(w.exports), func(v int64) bool { return !known[v] })
}

// sweep deletes checkpoints and exports beyond the newest cfg.Keep of each, except
// exports that a load or a plan names; of checkpoints, those of timelines that were left
// go first. What no fact names is left alone: it may be somebody's, or the next cut.
// Failing to delete costs space, so it is only logged.
func (s *Server) sweep(j lineage.Job, done *swept) {
	root, err := os.OpenRoot(s.cfg.Dir)
	if err != nil {
		s.log.Warn("old checkpoints cannot be deleted", "dir", s.cfg.Dir, "err", err)
		return
	}
	defer root.Close()
	checkpoints := append(j.Restorable(), j.Left()...)
	for _, c := range checkpoints[min(s.cfg.Keep, len(checkpoints)):] {
		if c.GetDir() != s.cfg.Dir || slices.Contains(done.checkpoints, c.GetId()) {
			continue
		}
		if s.remove(root, checkpointDir("", c.GetId())) {
			done.checkpoints = append(done.checkpoints, c.GetId())
		}
	}
	slices.Sort(done.checkpoints)
	named := s.named()
	exported := filepath.Join(s.cfg.Dir, exportsDir)
	for n := len(j.Exports) - s.cfg.Keep; n > 0; n-- {
		e := j.Exports[n-1].V
		if e.GetModelDir() != exported || named[e.GetVersion()] || slices.Contains(done.exports, e.GetVersion()) {
			continue
		}
		if s.removeExport(root, e.GetSubModels(), e.GetVersion()) {
			done.exports = append(done.exports, e.GetVersion())
		}
	}
	slices.Sort(done.exports)
	done.exports = slices.Compact(done.exports)
}

func (s *Server) removeExport(root *os.Root, subs []string, version int64) (gone bool) {
	gone = true
	for _, sub := range subs {
		if sub != filepath.Base(sub) || !filepath.IsLocal(sub) {
			s.log.Warn("an export names a sub-model that is no folder's name; it is left alone", "sub_model", sub, "version", version)
			continue
		}
		gone = s.remove(root, filepath.Join(exportsDir, sub, strconv.FormatInt(version, 10))) && gone
	}
	return gone
}

// discard deletes what a failed attempt at a checkpoint has left.
func (s *Server) discard(id int64) {
	root, err := os.OpenRoot(s.cfg.Dir)
	if err != nil {
		return // nothing was written
	}
	defer root.Close()
	s.remove(root, checkpointDir("", id))
	s.removeExport(root, s.subModels(), id)
}

// subModels are the parts of an export.
func (s *Server) subModels() []string {
	subs := []string{"entry"}
	for i := range s.cfg.Shards {
		subs = append(subs, "ps_"+strconv.Itoa(i))
	}
	return subs
}

// remove hides the folder under a name that nobody reads before it empties it, so that
// a crash leaves no half of a checkpoint. It says whether nothing is left.
func (s *Server) remove(root *os.Root, dir string) bool {
	gone := filepath.Join(filepath.Dir(dir), ".deleted-"+filepath.Base(dir))
	err := root.RemoveAll(gone)
	if err == nil {
		err = root.Rename(dir, gone)
	}
	if errors.Is(err, os.ErrNotExist) {
		return true
	}
	if err == nil {
		err = root.RemoveAll(gone)
	}
	if err != nil {
		s.log.Warn("an old checkpoint could not be deleted", "dir", dir, "err", err)
	}
	return err == nil
}

// named lists the versions below this job's exports that a load or a plan names. A load
// of version 0 stands for the newest, which sweep does not touch.
func (s *Server) named() map[int64]bool {
	exported := filepath.Join(s.cfg.Dir, exportsDir)
	named := map[int64]bool{}
	s.catalog.Read(func(c models.State) {
		for _, m := range c.Models {
			if l := m.Load.V; l != nil && filepath.Clean(l.GetModelDir()) == exported {
				named[l.GetVersion()] = true
			}
		}
	})
	s.plan.Read(func(p plan.State) {
		for _, m := range p.Plans {
			if l := m.Planned.V; l != nil && filepath.Clean(l.GetModelDir()) == exported {
				named[l.GetVersion()] = true
			}
		}
	})
	return named
}
