package chief

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/services/trainer/cut"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

// cutJob is this trainer's job as its cuts need it.
func (s *Trainer) cutJob() cut.Job {
	return cut.Job{
		Bus: s.Env.Bus, BZID: s.Env.BZID, Name: s.Job, Dir: s.Dir, Shards: s.Shards,
		Deterministic: s.Deterministic, Generation: s.generation, Log: s.Log,
		Variables: func(ctx context.Context, turn, generation uint64) ([][]float32, error) {
			return shards.FetchVariables(ctx, s.Shards, s.Engine(), turn, generation)
		},
	}
}

// Folder is where the job's checkpoints and exports lie.
func (s *Trainer) Folder() cut.Folder {
	return cut.Folder{Dir: s.Dir, Keep: s.Keep, Shards: s.NumShards, Log: s.Log}
}

// Sweep deletes what is too old of the job's folder, and of no use.
func (s *Trainer) Sweep(j lineage.Job, done *cut.Swept) { s.Folder().Sweep(j, s.named(), done) }

// sweepNow deletes what is too old by what the log says now, of which a checkpoint that was kept, or
// returned to, meanwhile is no part: from the chief's folder, and from the disk of every shard. What a shard has not
// deleted is not said to be, so that the next sweep has it deleted.
func (c *Chief) sweepNow(ctx context.Context) {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	if err := c.caughtUp(ctx); err != nil {
		c.Log.Warn("no old checkpoints are deleted by facts that may be behind", "err", err)
		return
	}
	c.swept.Told(c.job())
	done := cut.Swept{Checkpoints: slices.Clone(c.swept.Checkpoints), Exports: slices.Clone(c.swept.Exports)}
	c.Sweep(c.job(), &done)
	shards := c.cutJob()
	if err := shards.Discard(ctx, c.epoch, done.Checkpoints, done.Exports); err != nil {
		c.Log.Warn("old checkpoints are not deleted from every shard's disk yet", "err", err)
		return
	}
	c.swept = done
}

// named lists the versions below this job's exports that a load or a plan names. A load
// of version 0 stands for the newest, which sweep does not touch.
func (s *Trainer) named() map[int64]bool {
	exported := filepath.Join(s.Dir, cut.ExportsDir)
	named := map[int64]bool{}
	s.Catalog.Read(func(c models.State) {
		for _, m := range c.Models {
			if l := m.Load.V; l != nil && filepath.Clean(l.GetModelDir()) == exported {
				named[l.GetVersion()] = true
			}
		}
	})
	s.Plan.Read(func(p plan.State) {
		for _, m := range p.Plans {
			if l := m.Planned.V; l != nil && filepath.Clean(l.GetModelDir()) == exported {
				named[l.GetVersion()] = true
			}
		}
	})
	return named
}
