package warm

import (
	"context"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
)

// Pending is the checkpoint of the job's own to which it has still to return, as j has it: 0 where none is named, where
// another job's folder is, or where the job has been sent there before. A checkpoint that the job does not have is an error.
func (c *Config) Pending(name string, j lineage.Job) (id int64, err error) {
	if c.Given() || c.Checkpoint == "" {
		return 0, nil
	}
	id, err = c.id()
	if err != nil || slices.Contains(j.Returned, id) {
		return 0, err
	}
	if saved := j.IDs(); len(saved) == 0 {
		return 0, fmt.Errorf("job %s has no checkpoint yet, so none %d: leave restore-ckpt out, or name another job's folder with restore-dir", name, id)
	} else if !slices.Contains(saved, id) {
		return 0, fmt.Errorf("checkpoint %d of job %s is not on disk: name one of %v with restore-ckpt, or another job's folder with restore-dir", id, name, saved)
	}
	return id, nil
}

// Done says that a job has been to the checkpoint of its own that is named, by this flag or otherwise, and so does not
// return there; "" where it does, or none is named.
func (c *Config) Done(name string, j lineage.Job) string {
	if id, err := c.id(); !c.Given() && err == nil && slices.Contains(j.Returned, id) {
		return fmt.Sprintf("job %s has been sent back to checkpoint %d before, and goes on from where it stands: restore-ckpt does so once; monolith job restore --job %s --checkpoint %d does so again while it runs", name, id, name, id)
	}
	return ""
}

// Return sends a job back to a checkpoint of its own where one is named and no other job is: at the sequence that it
// returns, 0 where nothing was to do. It does so once: a trainer that starts again with the same flags finds in the
// log that the job has been sent there.
func (c *Config) Return(ctx context.Context, j Job) (seq uint64, err error) {
	id, err := c.Pending(j.Name, j.Now())
	if err != nil || id == 0 {
		return 0, err
	}
	if err := j.Holds(ctx, id); err != nil {
		return 0, err
	}
	end, err := j.Deltas(ctx)
	if err != nil {
		return 0, fmt.Errorf("find the end of the deltas: %w", err)
	}
	var refused error
	seqs, err := j.Append(ctx, func(now lineage.Job) []*training.Event {
		var to int64
		if to, refused = c.Pending(j.Name, now); to == 0 {
			return nil
		}
		return []*training.Event{{Body: &training.Event_JobRestored{JobRestored: &training.JobRestored{
			Checkpoint: to, Reason: "restore-ckpt " + c.Checkpoint, Generation: j.Generation(), SyncSeq: end,
		}}}}
	})
	if err == nil {
		err = refused
	}
	if err != nil || len(seqs) == 0 {
		return 0, err
	}
	return seqs[0], nil
}
