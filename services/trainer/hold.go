package trainer

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/trainer/requests"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

// restPatience is how long the answer to a pause waits for trainers to come to rest.
const restPatience = 10 * time.Second

// hold answers requests to pause and to resume, until ctx ends, beside checkpoints: a pause does not
// wait for one, nor for shards that are away.
func (c *chief) hold(ctx context.Context) {
	s := c.s
	pauses := retry.New(pauseAfterError, 10*time.Second)
	for ctx.Err() == nil {
		asked, moved := s.requests.Changed(), s.lineage.Changed()
		var q *requests.Request
		s.requests.Read(func(r requests.State) { q = r.Hold })
		if q != nil && c.runs() {
			_, seq, err := c.holds(ctx, *q, q.Pause)
			if err == nil && seq > 0 {
				err = s.requests.Wait(ctx, seq)
			}
			if err == nil {
				pauses.Reset()
				continue
			}
			s.log.Warn("a request to pause or to resume is not answered yet", "err", err)
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
func (c *chief) holds(ctx context.Context, q requests.Request, pause bool) (before lineage.Pause, seq uint64, err error) {
	_, seqs, err := c.append(ctx, q, func(j lineage.Job) []*training.Event {
		before = j.Paused
		switch {
		case j.Started.V == nil || j.Stopped:
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
	c.s.log.Info("the job is told to pause or to go on", "paused", pause, "reason", q.Reason)
	return before, seqs[0], nil
}

// jobStatus is what a job's chief tells of it.
type jobStatus struct {
	Job        string  `json:"job"`
	Running    bool    `json:"running"`              // started, and not stopped
	Paused     bool    `json:"paused"`               // takes no records for now
	Reason     string  `json:"reason,omitempty"`     // of the pause
	Seq        uint64  `json:"seq,omitempty"`        // of the pause, or of what the command has led to
	Blocked    []int   `json:"blocked"`              // indices of live trainers that have nothing under way in the pause
	Unblocked  []int   `json:"unblocked"`            // of the others
	GlobalStep *uint64 `json:"globalStep,omitempty"` // applies that every shard has; absent: a shard is away
	Checkpoint int64   `json:"checkpoint,omitempty"` // the newest
}

func (s *Server) status() jobStatus {
	j := s.job()
	st := jobStatus{Job: s.cfg.Job, Running: j.Started.V != nil && !j.Stopped, Paused: j.Paused.Seq > 0, Reason: j.Paused.Reason, Seq: j.Paused.Seq, Blocked: []int{}, Unblocked: []int{}}
	if n := len(j.Checkpoints); n > 0 {
		st.Checkpoint = j.Checkpoints[n-1].V.GetId()
	}
	s.fleet.Read(func(f fleet.State) {
		for id, x := range f.Containers {
			v := x.Container.V
			if !x.Alive || v.GetKind() != kind || v.GetServerType() != serverType || v.GetJob() != s.cfg.Job {
				continue
			}
			if _, rests := slices.BinarySearch(j.Paused.Resting, id); rests {
				st.Blocked = append(st.Blocked, int(v.GetIndex()))
			} else {
				st.Unblocked = append(st.Unblocked, int(v.GetIndex()))
			}
		}
	})
	slices.Sort(st.Blocked)
	slices.Sort(st.Unblocked)
	return st
}

// rested is the status once every live trainer rests, the job goes on, or patience ends.
func (s *Server) rested(ctx context.Context) jobStatus {
	ctx, cancel := context.WithTimeout(ctx, restPatience)
	defer cancel()
	for {
		moved, fleet := s.lineage.Changed(), s.fleet.Changed()
		st := s.status()
		if !st.Paused || len(st.Unblocked) == 0 {
			return st
		}
		select {
		case <-moved:
		case <-fleet:
		case <-ctx.Done():
			return st
		}
	}
}

func holdReason(payload []byte, example string) (requests.Request, error) {
	var body struct {
		Reason string `json:"reason"`
	}
	if err := role.DecodeJSON(payload, &body, example); err != nil {
		return requests.Request{}, err
	}
	return requests.Request{Reason: cmp.Or(body.Reason, "on command")}, nil
}

// pause has the job take no more records, and waits until its trainers rest.
func (c *chief) pause(ctx context.Context, why requests.Request) (jobStatus, error) {
	before, seq, err := c.holds(ctx, why, true)
	switch {
	case err != nil:
		return jobStatus{}, bus.Refuse(bus.CodeUnavailable, "pause: %v: whether the job pauses is not known, ask for its status", err)
	case before.Seq > 0:
		return jobStatus{}, bus.Refuse(bus.CodeConflict, "job %s is paused already (event %d: %s): resume it first", c.s.cfg.Job, before.Seq, before.Reason)
	case seq == 0:
		return jobStatus{}, bus.Refuse(bus.CodeConflict, "job %s does not run: start it first", c.s.cfg.Job)
	}
	return c.s.rested(ctx), nil
}

// resume has a paused job go on. Any other one is left as it is.
func (c *chief) resume(ctx context.Context, why requests.Request) (jobStatus, error) {
	_, seq, err := c.holds(ctx, why, false)
	if err != nil {
		return jobStatus{}, bus.Refuse(bus.CodeUnavailable, "resume: %v: whether the job goes on is not known, ask again", err)
	}
	st := c.s.status()
	st.Seq = seq
	return st, nil
}

// handlePause answers trainer.<job>.pause.
func (c *chief) handlePause(ctx context.Context, payload []byte) ([]byte, error) {
	why, err := holdReason(payload, `{"reason":"the upgrade of the shards"}`)
	if err != nil {
		return nil, err
	}
	st, err := c.pause(ctx, why)
	if err != nil {
		return nil, err
	}
	return json.Marshal(st)
}

// handleResume answers trainer.<job>.resume.
func (c *chief) handleResume(ctx context.Context, payload []byte) ([]byte, error) {
	why, err := holdReason(payload, `{"reason":"the shards are upgraded"}`)
	if err != nil {
		return nil, err
	}
	st, err := c.resume(ctx, why)
	if err != nil {
		return nil, err
	}
	return json.Marshal(st)
}

// statusPatience bounds the question to the shards how far they are.
const statusPatience = 2 * time.Second

// handleStatus answers trainer.<job>.status.
func (c *chief) handleStatus(ctx context.Context, payload []byte) ([]byte, error) {
	if err := role.DecodeJSON(payload, &struct{}{}, `{}`); err != nil {
		return nil, err
	}
	st := c.s.status()
	if step, err := c.s.globalStep(ctx); err == nil {
		st.GlobalStep = &step
	}
	return json.Marshal(st)
}

// globalStep is how many applies every shard has.
func (s *Server) globalStep(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	if err := s.shards.Wait(ctx); err != nil {
		return 0, err
	}
	all, err := s.shards.Offsets(ctx)
	if err != nil {
		return 0, err
	}
	return shards.LeastStep(all), nil
}
