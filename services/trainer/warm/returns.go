package warm

import (
	"context"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
)

// Return sends a job back to a checkpoint of its own where one is named and no other job is: at the sequence that it
// returns, 0 where nothing was to do. It does so once: a trainer that starts again with the same flags finds in the
// log that the job has been sent there.
func (c *Config) Return(ctx context.Context, j Job) (seq uint64, err error) {
	if c.Given() || c.Checkpoint == "" {
		return 0, nil
	}
	id, err := c.id()
	if err != nil || slices.Contains(j.Now().Returned, id) {
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
		refused = nil
		saved := now.IDs()
		switch {
		case slices.Contains(now.Returned, id):
			return nil
		case !slices.Contains(saved, id):
			refused = fmt.Errorf("checkpoint %d of job %s is not on disk: name one of %v with restore-ckpt, or another job's folder with restore-dir", id, j.Name, saved)
			return nil
		}
		return []*training.Event{{Body: &training.Event_JobRestored{JobRestored: &training.JobRestored{
			Checkpoint: id, Reason: "restore-ckpt " + c.Checkpoint, Generation: j.Generation(), SyncSeq: end,
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
