package trainer

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/monolith-go/monolith/projections/catalog"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
)

const exportsDir = "exported_models"

// sweep deletes checkpoints and exports beyond the newest cfg.Keep of each, except
// exports that a load or a plan names. What no fact names is left alone: it may be
// somebody's, or the next cut. Failing to delete costs space, so it is only logged.
func (s *Server) sweep(j lineage.Job) {
	for n := len(j.Checkpoints) - s.cfg.Keep; n > 0; n-- {
		if c := j.Checkpoints[n-1].V; c.GetDir() == s.cfg.Dir {
			s.remove(checkpointDir(s.cfg.Dir, c.GetId()))
		}
	}
	named := s.named()
	models := filepath.Join(s.cfg.Dir, exportsDir)
	for n := len(j.Exports) - s.cfg.Keep; n > 0; n-- {
		e := j.Exports[n-1].V
		if e.GetModelDir() != models || named[e.GetVersion()] {
			continue
		}
		for _, sub := range e.GetSubModels() {
			s.remove(filepath.Join(models, sub, strconv.FormatInt(e.GetVersion(), 10)))
		}
	}
}

// remove hides the folder under a name that nobody reads before it empties it, so that
// a crash leaves no half of a checkpoint.
func (s *Server) remove(dir string) {
	gone := filepath.Join(filepath.Dir(dir), ".deleted-"+filepath.Base(dir))
	err := os.RemoveAll(gone)
	if err == nil {
		err = os.Rename(dir, gone)
	}
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil {
		err = os.RemoveAll(gone)
	}
	if err != nil {
		s.log.Warn("an old checkpoint could not be deleted", "dir", dir, "error", err)
	}
}

// named lists the versions below this job's exports that a load or a plan names. A load
// of version 0 stands for the newest, which sweep does not touch.
func (s *Server) named() map[int64]bool {
	models := filepath.Join(s.cfg.Dir, exportsDir)
	named := map[int64]bool{}
	s.catalog.Read(func(c catalog.State) {
		for _, m := range c.Models {
			if l := m.Load.V; l != nil && filepath.Clean(l.GetModelDir()) == models {
				named[l.GetVersion()] = true
			}
		}
	})
	s.plan.Read(func(p plan.State) {
		for _, m := range p.Plans {
			if l := m.Planned.V; l != nil && filepath.Clean(l.GetModelDir()) == models {
				named[l.GetVersion()] = true
			}
		}
	})
	return named
}
