package trainer

import (
	"path/filepath"

	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/services/trainer/cut"
)

// cutJob is this trainer's job as its cuts need it.
func (s *Server) cutJob() cut.Job {
	return cut.Job{
		Bus: s.env.Bus, BZID: s.env.BZID, Name: s.cfg.Job, Dir: s.cfg.Dir, Shards: s.shards,
		Deterministic: s.cfg.Deterministic, Generation: s.generation, Log: s.log,
	}
}

// folder is where the job's checkpoints and exports lie.
func (s *Server) folder() cut.Folder {
	return cut.Folder{Dir: s.cfg.Dir, Keep: s.cfg.Keep, Shards: s.cfg.Shards, Log: s.log}
}

// sweep deletes what is too old of the job's folder, and of no use.
func (s *Server) sweep(j lineage.Job, done *cut.Swept) { s.folder().Sweep(j, s.named(), done) }

// named lists the versions below this job's exports that a load or a plan names. A load
// of version 0 stands for the newest, which sweep does not touch.
func (s *Server) named() map[int64]bool {
	exported := filepath.Join(s.cfg.Dir, cut.ExportsDir)
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
