package chief

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/trainer/requests"
	"github.com/monolith-go/monolith/services/trainer/source"
	"github.com/monolith-go/monolith/services/trainer/warm"
)

const (
	beginPause   = 200 * time.Millisecond
	StopPatience = 30 * time.Second // for shards that are away, so that a stop keeps what they have learnt
)

// Begin returns once the job runs as this trainer was started for, and its shards are
// there. Whatever keeps the job from running does not keep it from being stopped.
func (c *Chief) Begin(ctx context.Context) error {
	s := c.Trainer
	defer s.Env.Health.OK(HealthStart)
	began, pauses := time.Now(), retry.New(beginPause, 10*time.Second)
	for last := (role.LastLogged{}); ; {
		asked, moved, fleet, prepared := s.Requests.Changed(), s.Lineage.Changed(), s.Fleet.Changed(), s.Preparing()
		if err := c.ParkRefused(ctx); err != nil {
			return err
		}
		err := c.tryBegin(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, ErrIdle) {
			s.Env.Health.Fail(HealthStart, err)
			patient := errors.Is(err, errNoShards) && c.runs() && time.Since(began) < StopPatience
			if q, ok := c.stopAsked(); ok && !patient {
				return c.end(ctx, q, err)
			}
		}
		if last.Changed(err.Error()) {
			s.Log.Warn("the job does not run", "reason", err)
		}
		t := time.NewTimer(pauses.Next())
		select {
		case <-asked:
		case <-moved:
		case <-fleet:
		case <-prepared:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// ErrIdle is a stopped job: it learns nothing until somebody asks for its start.
var ErrIdle = errors.New("the job is stopped: it goes on once startRequested is published")

var errNoShards = errors.New("not all shards are there")

// runs says whether the log has the job running.
func (c *Chief) runs() bool {
	j := c.job()
	return j.Started.V != nil && !j.Stopped
}

func (c *Chief) tryBegin(ctx context.Context) error {
	s := c.Trainer
	if c.job().Stopped && !s.startAsked() {
		return ErrIdle
	}
	if s.Engine() == nil {
		return fmt.Errorf("model %s is not declared, or cannot be learnt", s.Model)
	}
	if _, ok := s.Shards.Incarnation(); !ok {
		return errNoShards
	}
	if _, _, err := s.Shards.Address(0); err != nil {
		return err
	}
	if err := c.warm(ctx); err != nil {
		return err
	}
	return c.Start(ctx)
}

func (c *Chief) stopAsked() (requests.Request, bool) {
	for _, q := range c.Trainer.Open() {
		if q.Stop {
			return q, true
		}
	}
	return requests.Request{}, false
}

// end stops a job that cannot run, at the last checkpoint that it has.
func (c *Chief) end(ctx context.Context, q requests.Request, why error) error {
	_, _, err := c.append(ctx, q, func(j lineage.Job) []*training.Event {
		if j.Stopped {
			return nil
		}
		e := &training.JobStopped{Reason: fmt.Sprintf("%s (at the last checkpoint, since the job does not run: %v)", cmp.Or(q.Reason, "on request"), why)}
		if n := len(j.Checkpoints); n > 0 {
			e.Offsets = j.Checkpoints[n-1].V.GetOffsets()
		}
		return []*training.Event{{Body: &training.Event_JobStopped{JobStopped: e}}}
	})
	if err != nil {
		return err
	}
	c.Trainer.Log.Warn("the job is stopped at its last checkpoint", "reason", q.Reason)
	return ErrStopped
}

// Start appends jobStarted if the job never ran, or was stopped and is to go on, and
// otherwise makes sure that it runs as this trainer was started for. It takes up what of
// the topic the job does not have yet.
func (c *Chief) Start(ctx context.Context) error {
	s := c.Trainer
	j := c.job()
	b, running := j.Started.V, c.runs()
	if running {
		if err := s.Differs(b); err != nil {
			return err
		}
		if err := s.Endless(b); err != nil && s.Deterministic {
			return err
		}
	}
	t, err := s.Source.Describe(ctx)
	if err != nil && (!running || errors.Is(err, kafka.ErrNoTopic)) {
		return fmt.Errorf("waiting for the training topic: %w", err)
	}
	if known := err == nil; known && b != nil {
		if err := s.Fits(b, t); err != nil {
			return err
		}
	} else if !known && (!s.StopAtEnd || len(b.GetEnds()) > 0) {
		return nil // the job runs, and its topic is looked at later on
	} else if !known {
		return fmt.Errorf("waiting for the training topic: %w", err)
	}
	var begins, ends map[int32]int64
	if !running || s.StopAtEnd && len(b.GetEnds()) == 0 {
		if begins, ends, err = source.Bounds(ctx, s.Source, t.ID, s.PartitionsOf(b, t)); err != nil {
			return err
		}
	}
	if !s.StopAtEnd {
		ends = nil
	}
	files, err := s.Source.Files(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the files: %w", err)
	}
	var why requests.Request
	s.Requests.Read(func(r requests.State) {
		if r.Start != nil {
			why = *r.Start
		}
	})
	_, _, err = c.append(ctx, why, func(now lineage.Job) []*training.Event {
		if now.Started.V != nil && !now.Stopped {
			if now.Started.V.GetSpecHash() == "" { // begun before declarations were hashed
				hashed := proto.CloneOf(now.Started.V)
				hashed.SpecHash = s.Engine().Hash()
				return []*training.Event{{Body: &training.Event_JobStarted{JobStarted: hashed}}}
			}
			if e := s.Update(now.Started.V, t, ends); e != nil {
				return []*training.Event{e}
			}
			return nil
		}
		if now.Stopped && why.ID == "" {
			return nil // it was stopped just now
		}
		started := s.Started()
		started.Parent = warm.ParentOf(now)
		started.Partitions, started.TopicId = s.PartitionsOf(now.Started.V, t), t.ID
		started.Begins, started.Ends, started.Files = begins, ends, files
		return []*training.Event{{Body: &training.Event_JobStarted{JobStarted: started}}}
	})
	if err != nil {
		return fmt.Errorf("start the job: %w", err)
	}
	if !c.runs() {
		return ErrIdle
	}
	return s.Differs(c.job().Started.V)
}

// warm has a new job begin with what another one has learnt, or a job return to a checkpoint of its own, where one is
// named, and waits until its shards stand there.
func (c *Chief) warm(ctx context.Context) error {
	s := c.Trainer
	job := warm.Job{
		Name: s.Job, Dir: s.Dir, Spec: s.Engine().Spec(), Now: c.job, Deltas: s.Env.Bus.Deltas().Last, Generation: s.NextGeneration,
		Holds: c.restorable,
		Claim: func(ctx context.Context) (int64, error) {
			return c.Claim(ctx, requests.Request{Reason: "begin of another job's checkpoint"})
		},
		Append: func(ctx context.Context, decide func(lineage.Job) []*training.Event) ([]uint64, error) {
			_, seqs, err := c.append(ctx, requests.Request{}, decide)
			return seqs, err
		},
	}
	seq, err := s.Restore.Begin(ctx, job)
	if err != nil {
		return fmt.Errorf("begin from another job's checkpoint: %w", err)
	}
	back, err := c.returnByFlag(ctx, job)
	if err != nil {
		return fmt.Errorf("return to the job's own checkpoint: %w", err)
	}
	if back > 0 {
		s.Log.Warn("the job returns to a checkpoint", "checkpoint", s.Restore.Checkpoint, "reason", "restore-ckpt", "seq", back)
	} else if why := s.Restore.Done(s.Job, c.job()); why != "" {
		s.Log.Info("the job returns to no checkpoint", "reason", why)
	}
	seq = max(seq, back)
	if j := c.job(); (j.Started.V == nil || back > 0) && max(seq, j.Restored.Seq) > 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // a stop is heard between two looks
		defer cancel()
		if s.AwaitReturn(ctx, max(seq, j.Restored.Seq)) != nil {
			return errors.New("waiting for the shards to restore the checkpoint that the job begins with")
		}
	}
	return nil
}

// returnByFlag has the job return to the checkpoint of its own that is named, where one is.
func (c *Chief) returnByFlag(ctx context.Context, job warm.Job) (seq uint64, err error) {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	return c.Restore.Return(ctx, job)
}

func (s *Trainer) startAsked() (asked bool) {
	s.Requests.Read(func(r requests.State) { asked = r.Start != nil })
	return asked
}
