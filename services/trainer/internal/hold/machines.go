package hold

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

// Machines pauses the job while the machine of one of its shards fails a check, and has it go on
// afterwards, until ctx ends.
func (h *Job) Machines(ctx context.Context) {
	pauses := retry.New(pauseAfterError, pauseAfterError*10)
	for ctx.Err() == nil {
		machines, moved := h.Fleet.Changed(), h.Lineage.Changed()
		if h.barrier(h.job()) != nil {
			_, seqs, err := h.Append(ctx, requests.Request{}, func(j lineage.Job) []*training.Event {
				if e := h.barrier(j); e != nil {
					return []*training.Event{e}
				}
				return nil
			})
			if err != nil {
				h.Log.Warn("the job could not be paused for a shard's machine, or told to go on", "err", err)
				_ = pauses.Wait(ctx) // the loop looks at ctx
				continue
			}
			pauses.Reset()
			h.Log.Info("a shard's machine has the job pause or go on", "seqs", seqs)
			continue
		}
		select {
		case <-machines:
		case <-moved:
		case <-ctx.Done():
		}
	}
}

func (h *Job) barrier(j lineage.Job) (e *training.Event) {
	h.Fleet.Read(func(f fleet.State) { e = barrier(j, f.Shards[h.Name]) })
	return e
}

// barrier is what the chief says of a job whose shards stand so, nil: nothing. It pauses a job once for each
// failure, so that whoever resumes it in spite of one is obeyed, and resumes only what it has paused itself.
func barrier(j lineage.Job, shards map[uint32]fleet.Shard) *training.Event {
	if !runs(j) {
		return nil
	}
	var failed uint64
	var why []string
	for i, s := range shards {
		if i >= j.Started.V.GetShards() {
			continue // of the job when it had more shards
		}
		if s.Machine.Seq > 0 {
			failed = max(failed, s.Machine.Seq)
			why = append(why, fmt.Sprintf("the machine of shard %d (%s): %s", i, s.Machine.Status, s.Machine.Reason))
		}
	}
	slices.Sort(why)
	switch {
	case j.Paused.Seq == 0 && failed > j.Guarded:
		return &training.Event{Body: &training.Event_JobPaused{JobPaused: &training.JobPaused{Reason: shortened(strings.Join(why, "; ")), MachineFailed: failed}}}
	case j.Paused.For > 0 && failed == 0:
		return &training.Event{Body: &training.Event_JobResumed{JobResumed: &training.JobResumed{Reason: "the shards' machines are well again"}}}
	}
	return nil
}

// maxReason bounds what a pause says of machines: a job may have thousands of shards.
const maxReason = 4 << 10

func shortened(text string) string {
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason], "") + " …"
}
