// Package jobs is training as one command each: a job that learns files in a folder of its own, and
// what is done with the checkpoints that it leaves there.
//
//	train     ── the roles that learning takes, around one log, until the files are learnt ──► export, report
//	evaluate  ── a checkpoint's rows and variables, read from its files ──► loss, AUC
//	predict   ── likewise ──► a line of scores for each sample
//	export    ── likewise ──► what model servers load
//
// Only train writes to the log and to the shards. The others read a checkpoint that a fact names, so
// no offset ever moves by them, and they may run beside the job.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/runconfig"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/registry"
)

// Place is where a job's folder is, and which checkpoint of it is meant.
type Place struct {
	Dir        string
	BZID       string
	Checkpoint int64          // 0: the newest
	NATS       string         // where the job's log is, if not in Dir
	keys       connect.Config // of the connection to it; nothing else of it is set
	Parts      []string       // folders like the job's, which have what that does not
}

// DefaultDir is the folder of a job where no flag names another.
const DefaultDir = "monolith-train"

// Register binds the flags of a command that reads a checkpoint.
func (p *Place) Register(fs *pflag.FlagSet) {
	fs.StringVar(&p.Dir, "dir", DefaultDir, "the job's `folder`, as train made it")
	fs.StringVar(&p.BZID, "bzid", flags.Env("MONOLITH_BZID", "demo"), "business `id` that the job was trained under (MONOLITH_BZID)")
	fs.Int64Var(&p.Checkpoint, "checkpoint", 0, "`id` of the checkpoint; 0: the newest")
	fs.StringVar(&p.NATS, "nats", "", "NATS `URL` of the job's log, of one whose roles run by themselves; empty: the log is in --dir")
	p.keys.RegisterKeys(fs)
	fs.StringArrayVar(&p.Parts, "parts", nil, "`folder` with parts of the checkpoint that the job's own does not hold here, such as that of another machine's disk, or what checkpoint fetch brought; may be repeated")
}

// Validate complains about what no folder is needed for.
func (p *Place) Validate() error {
	if p.Checkpoint < 0 {
		return fmt.Errorf("%w: --checkpoint %d must be the id of a checkpoint, or 0 for the newest", flags.ErrUsage, p.Checkpoint)
	}
	if err := onDisk("dir", p.Dir); err != nil {
		return err
	}
	return (&connect.Config{BZID: p.BZID}).Validate()
}

// configured takes a report of which nothing is kept: the flags have it all.
func (p *Place) configured(*runconfig.Report) {}

// saved is a checkpoint that the log of a folder names, and what it is of.
type saved struct {
	job        string
	checkpoint *training.Checkpoint
	spec       *model.ModelSpec
	exported   *training.ModelExported // of the same cut; nil: none
	folders    checkpoint.Folders      // in which its parts may lie
}

// shard reads what the i-th shard of the checkpoint wrote.
func (s *saved) shard(i int) (*checkpoint.Shard, error) {
	f := s.checkpoint.GetShards()[i]
	shard, err := s.folders.ReadShard(f.GetPath(), func(shard *checkpoint.Shard) error {
		if shard.Manifest.Hash != f.GetHash() || !maps.Equal(shard.Manifest.Offsets, s.checkpoint.GetOffsets()) {
			return fmt.Errorf("%s holds another state than the one that was saved", f.GetPath())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoint %d: %w", s.checkpoint.GetId(), err)
	}
	return shard, nil
}

// find looks a checkpoint up in the log of the folder: that of the process which holds it, or the
// folder's own, opened for the moment.
func (p *Place) find(ctx context.Context) (_ *saved, err error) {
	b, closed, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	return p.read(ctx, b)
}

// dial connects to the job's log: where it is, or in the folder.
func (p *Place) dial(ctx context.Context) (b bus.Bus, closed func() error, err error) {
	conn := p.keys
	conn.NATS, conn.BZID, conn.Level = p.NATS, p.BZID, "warn"
	if p.NATS == "" {
		return host.DialFolder(ctx, p.Dir, conn, "monolith job")
	}
	if b, err = conn.Dial(ctx, "monolith job"); err != nil {
		return nil, nil, err
	}
	return b, b.Close, nil
}

// Checkpoints are those of the job that are on disk, the oldest first; over says that no more will come.
func (p *Place) Checkpoints(ctx context.Context) (all []*training.Checkpoint, over bool, err error) {
	b, closed, err := p.dial(ctx)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	cuts, err := folded(ctx, b, registry.Lineage.Only(p.BZID))
	if err != nil {
		return nil, false, err
	}
	for _, j := range cuts.Jobs {
		all, over = j.Restorable(), j.Stopped
	}
	slices.Reverse(all)
	return all, over, nil
}

// read folds the log and chooses the checkpoint.
func (p *Place) read(ctx context.Context, b bus.Bus) (*saved, error) {
	cuts, err := folded(ctx, b, registry.Lineage.Only(p.BZID))
	if err != nil {
		return nil, err
	}
	catalog, err := folded(ctx, b, registry.Catalog.Only(p.BZID))
	if err != nil {
		return nil, err
	}
	return p.choose(cuts, catalog)
}

// ErrNotOnDisk says that a checkpoint was deleted, or never made.
var ErrNotOnDisk = errors.New("not on disk")

// choose finds the checkpoint that is meant among those of the folder's job.
func (p *Place) choose(cuts lineage.State, catalog models.State) (*saved, error) {
	if len(cuts.Jobs) != 1 {
		return nil, fmt.Errorf("the log of %s knows %d jobs in namespace %s, one is read: --bzid names another namespace", p.Dir, len(cuts.Jobs), p.BZID)
	}
	for name, j := range cuts.Jobs {
		all := j.Restorable()
		if len(all) == 0 {
			return nil, fmt.Errorf("job %s in %s has no checkpoint yet: train it first", name, p.Dir)
		}
		s := &saved{job: name, checkpoint: all[0], spec: catalog.Models[j.Started.V.GetModelName()].Spec.V}
		if s.spec == nil || modelspec.Hash(s.spec) != j.Started.V.GetSpecHash() {
			return nil, fmt.Errorf("the log of %s does not hold the declaration that job %s learns", p.Dir, name)
		}
		var ids []int64
		for _, c := range all {
			ids = append(ids, c.GetId())
		}
		at := 0
		if p.Checkpoint != 0 {
			if at = slices.Index(ids, p.Checkpoint); at < 0 {
				return nil, fmt.Errorf("checkpoint %d of job %s is %w: name one of %v", p.Checkpoint, name, ErrNotOnDisk, ids)
			}
		}
		s.checkpoint, s.folders = all[at], checkpoint.Folders(p.Parts).Beside(all[at].GetDir())
		for _, e := range j.Exports {
			if e.V.GetVersion() == ids[at] {
				s.exported = e.V
			}
		}
		return s, nil
	}
	return nil, nil
}

// folded is a view at the end of the log.
func folded[S any](ctx context.Context, b bus.Bus, v follow.View[S]) (state S, err error) {
	f := follow.New(b.Log(), v, follow.Options{})
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(run) }()
	select {
	case <-f.Ready():
		f.Read(func(s S) { state = s })
		stop()
		<-ended
		return state, nil
	case err := <-ended:
		stop()
		return state, errors.Join(err, ctx.Err())
	}
}
