package warm

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
)

// Job is the one that begins, as its chief knows it.
type Job struct {
	Name string
	Dir  string
	Spec *model.ModelSpec
	// Now is the job as the log has it; Append stores facts of it where what decide has read is still
	// the newest.
	Now    func() lineage.Job
	Append func(ctx context.Context, decide func(lineage.Job) []*training.Event) ([]uint64, error)
	// Claim takes a checkpoint's id, and Deltas finds their end.
	Claim  func(ctx context.Context) (int64, error)
	Deltas func(ctx context.Context) (uint64, error)
	// Holds refuses a checkpoint of the job's own of which its shards say that they cannot restore it.
	Holds func(ctx context.Context, id int64) error
	// Generation is one that no shard of a deterministic job is in yet.
	Generation func() uint64
}

// Begin gives a job that has no checkpoint the parent's, and sends its shards there: at the sequence that
// it returns, 0 where nothing was to do. Facts come last, together: before them there is a folder
// that nobody names.
func (c *Config) Begin(ctx context.Context, j Job) (seq uint64, err error) {
	if now := j.Now(); !c.Given() || len(now.Checkpoints) > 0 || now.Started.V != nil {
		return 0, nil
	}
	p, err := c.Find()
	if err == nil {
		err = p.Fits(j.Spec) // before an id is claimed for it
	}
	if err != nil {
		return 0, err
	}
	end, err := j.Deltas(ctx)
	if err != nil {
		return 0, fmt.Errorf("find the end of the deltas: %w", err)
	}
	id, err := j.Claim(ctx)
	if err != nil {
		return 0, fmt.Errorf("claim a checkpoint's id: %w", err)
	}
	made, err := p.Write(ctx, Child{Job: j.Name, Spec: j.Spec, Dir: j.Dir, Checkpoint: id, SyncSeq: end})
	if err != nil {
		return 0, fmt.Errorf("take over checkpoint %d of job %s: %w", p.parts[0].Checkpoint, p.parts[0].Job, err)
	}
	why := fmt.Sprintf("restored from checkpoint %d of job %s in %s", made.Parent.Checkpoint, made.Parent.Job, made.Parent.Dir)
	seqs, err := j.Append(ctx, func(now lineage.Job) []*training.Event {
		if now.LastID != id || len(now.Checkpoints) > 0 {
			return nil // another chief has begun
		}
		return []*training.Event{
			{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{Checkpoint: made, Reason: why}}},
			{Body: &training.Event_JobRestored{JobRestored: &training.JobRestored{Checkpoint: id, Reason: why, Generation: j.Generation(), SyncSeq: end}}},
		}
	})
	if err == nil && len(seqs) == 0 {
		err = fmt.Errorf("another chief has begun the job meanwhile")
	}
	if err != nil {
		return 0, err
	}
	return seqs[1], nil
}

// ParentOf is from where a job began, nil for one that began untrained.
func ParentOf(j lineage.Job) *training.Parent {
	if p := j.Started.V.GetParent(); p != nil {
		return p
	}
	for _, c := range j.Checkpoints {
		if c.V.GetParent() != nil {
			return c.V.GetParent()
		}
	}
	return nil
}
