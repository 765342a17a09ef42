// Package hold pauses a training job and has it go on, by requests and by commands, and tells how it
// stands. The job's chief runs it.
package hold

import (
	"context"
	"log/slog"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/requests"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

const pauseAfterError = time.Second // between attempts to answer a request

// Job is a training job, as its chief has it paused and resumed. It keeps nothing: a pause is a fact.
type Job struct {
	Name     string
	Lineage  *follow.Follower[lineage.State]
	Fleet    *follow.Follower[fleet.State]
	Requests *follow.Follower[requests.State]
	Shards   *shards.Set
	Log      *slog.Logger
	// Takes says whether a container is one of the job's trainers.
	Takes func(*container.Container) bool
	// Append stores the facts of the job that decide makes of it, caused by why, while its chief leads.
	Append func(ctx context.Context, why requests.Request, decide func(lineage.Job) []*training.Event) ([]bus.Draft, []uint64, error)
}

// job is the job as the log has it.
func (h *Job) job() (j lineage.Job) {
	h.Lineage.Read(func(st lineage.State) { j = st.Jobs[h.Name] })
	return j
}

// runs says whether the log has the job running.
func runs(j lineage.Job) bool { return j.Started.V != nil && !j.Stopped }

// Run answers requests to pause and to resume, until ctx ends, beside checkpoints: a pause does not
// wait for one, nor for shards that are away.
func (h *Job) Run(ctx context.Context) {
	pauses := retry.New(pauseAfterError, 10*time.Second)
	for ctx.Err() == nil {
		asked, moved := h.Requests.Changed(), h.Lineage.Changed()
		var q *requests.Request
		h.Requests.Read(func(r requests.State) { q = r.Hold })
		if q != nil && runs(h.job()) {
			_, seq, err := h.holds(ctx, *q, q.Pause)
			if err == nil && seq > 0 {
				err = h.Requests.Wait(ctx, seq)
			}
			if err == nil {
				pauses.Reset()
				continue
			}
			h.Log.Warn("a request to pause or to resume is not answered yet", "err", err)
			_ = pauses.Wait(ctx) // the loop looks at ctx
			continue
		}
		select {
		case <-asked:
		case <-moved:
		case <-ctx.Done():
		}
	}
}

// holds appends what q asks of a running job; seq is 0 where it does not run. before is how it was paused.
func (h *Job) holds(ctx context.Context, q requests.Request, pause bool) (before lineage.Pause, seq uint64, err error) {
	_, seqs, err := h.Append(ctx, q, func(j lineage.Job) []*training.Event {
		before = j.Paused
		switch {
		case !runs(j):
			return nil
		case q.ID == "" && (before.Seq > 0) == pause: // of a command, which says so
			return nil
		case pause:
			return []*training.Event{{Body: &training.Event_JobPaused{JobPaused: &training.JobPaused{Reason: q.Reason}}}}
		}
		return []*training.Event{{Body: &training.Event_JobResumed{JobResumed: &training.JobResumed{Reason: q.Reason}}}}
	})
	if err != nil || len(seqs) == 0 {
		return before, 0, err
	}
	h.Log.Info("the job is told to pause or to go on", "paused", pause, "reason", q.Reason)
	return before, seqs[0], nil
}

// Pause has the job take no more records, and waits until its trainers rest.
func (h *Job) Pause(ctx context.Context, why requests.Request) (Status, error) {
	before, seq, err := h.holds(ctx, why, true)
	switch {
	case err != nil:
		return Status{}, bus.Refuse(bus.CodeUnavailable, "pause: %v: whether the job pauses is not known, ask for its status", err)
	case before.Seq > 0:
		return Status{}, bus.Refuse(bus.CodeConflict, "job %s is paused already (event %d: %s): resume it first", h.Name, before.Seq, before.Reason)
	case seq == 0:
		return Status{}, bus.Refuse(bus.CodeConflict, "job %s does not run: start it first", h.Name)
	}
	return h.rested(ctx), nil
}

// Resume has a paused job go on. Any other one is left as it is.
func (h *Job) Resume(ctx context.Context, why requests.Request) (Status, error) {
	_, seq, err := h.holds(ctx, why, false)
	if err != nil {
		return Status{}, bus.Refuse(bus.CodeUnavailable, "resume: %v: whether the job goes on is not known, ask again", err)
	}
	st := h.Status()
	st.Seq = seq
	return st, nil
}
