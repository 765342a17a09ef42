package trainer

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
	stopPatience = 30 * time.Second // for shards that are away, so that a stop keeps what they have learnt
)

// begin returns once the job runs as this trainer was started for, and its shards are
// there. Whatever keeps the job from running does not keep it from being stopped.
func (c *chief) begin(ctx context.Context) error {
	s := c.s
	defer s.env.Health.OK(healthStart)
	began, pauses := time.Now(), retry.New(beginPause, 10*time.Second)
	for last := (role.LastLogged{}); ; {
		asked, moved, fleet, prepared := s.requests.Changed(), s.lineage.Changed(), s.fleet.Changed(), s.preparing()
		if err := c.parkRefused(ctx); err != nil {
			return err
		}
		err := c.tryBegin(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, errIdle) {
			s.env.Health.Fail(healthStart, err)
			patient := errors.Is(err, errNoShards) && c.runs() && time.Since(began) < stopPatience
			if q, ok := c.stopAsked(); ok && !patient {
				return c.end(ctx, q, err)
			}
		}
		if last.Changed(err.Error()) {
			s.log.Warn("the job does not run", "reason", err)
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

var errNoShards = errors.New("not all shards are there")

// runs says whether the log has the job running.
func (c *chief) runs() bool {
	j := c.job()
	return j.Started.V != nil && !j.Stopped
}

func (c *chief) tryBegin(ctx context.Context) error {
	s := c.s
	if c.job().Stopped && !s.startAsked() {
		return errIdle
	}
	if !s.isPrepared() {
		return fmt.Errorf("model %s is not declared, or cannot be learnt", s.cfg.Model)
	}
	if _, ok := s.shards.Incarnation(); !ok {
		return errNoShards
	}
	if _, _, err := s.shards.Address(0); err != nil {
		return err
	}
	if err := c.warm(ctx); err != nil {
		return err
	}
	return c.start(ctx)
}

func (c *chief) stopAsked() (requests.Request, bool) {
	for _, q := range c.s.open() {
		if q.Stop {
			return q, true
		}
	}
	return requests.Request{}, false
}

// end stops a job that cannot run, at the last checkpoint that it has.
func (c *chief) end(ctx context.Context, q requests.Request, why error) error {
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
	c.s.log.Warn("the job is stopped at its last checkpoint", "reason", q.Reason)
	return errStopped
}

// start appends jobStarted if the job never ran, or was stopped and is to go on, and
// otherwise makes sure that it runs as this trainer was started for. It takes up what of
// the topic the job does not have yet.
func (c *chief) start(ctx context.Context) error {
	s := c.s
	j := c.job()
	b, running := j.Started.V, c.runs()
	if running {
		if err := s.differs(b); err != nil {
			return err
		}
		if err := s.endless(b); err != nil && s.cfg.Deterministic {
			return err
		}
	}
	t, err := s.source.Describe(ctx)
	if err != nil && (!running || errors.Is(err, kafka.ErrNoTopic)) {
		return fmt.Errorf("waiting for the training topic: %w", err)
	}
	if known := err == nil; known && b != nil {
		if err := s.fits(b, t); err != nil {
			return err
		}
	} else if !known && (!s.cfg.StopAtEnd || len(b.GetEnds()) > 0) {
		return nil // the job runs, and its topic is looked at later on
	} else if !known {
		return fmt.Errorf("waiting for the training topic: %w", err)
	}
	var begins, ends map[int32]int64
	if !running || s.cfg.StopAtEnd && len(b.GetEnds()) == 0 {
		if begins, ends, err = source.Bounds(ctx, s.source, t.ID, s.partitionsOf(b, t)); err != nil {
			return err
		}
	}
	if !s.cfg.StopAtEnd {
		ends = nil
	}
	files, err := s.source.Files(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the files: %w", err)
	}
	var why requests.Request
	s.requests.Read(func(r requests.State) {
		if r.Start != nil {
			why = *r.Start
		}
	})
	_, _, err = c.append(ctx, why, func(now lineage.Job) []*training.Event {
		if now.Started.V != nil && !now.Stopped {
			if now.Started.V.GetSpecHash() == "" { // begun before declarations were hashed
				hashed := proto.CloneOf(now.Started.V)
				hashed.SpecHash = s.engine.Hash()
				return []*training.Event{{Body: &training.Event_JobStarted{JobStarted: hashed}}}
			}
			if e := s.update(now.Started.V, t, ends); e != nil {
				return []*training.Event{e}
			}
			return nil
		}
		if now.Stopped && why.ID == "" {
			return nil // it was stopped just now
		}
		started := s.started()
		started.Parent = warm.ParentOf(now)
		started.Partitions, started.TopicId = s.partitionsOf(now.Started.V, t), t.ID
		started.Begins, started.Ends, started.Files = begins, ends, files
		return []*training.Event{{Body: &training.Event_JobStarted{JobStarted: started}}}
	})
	if err != nil {
		return fmt.Errorf("start the job: %w", err)
	}
	if !c.runs() {
		return errIdle
	}
	return s.differs(c.job().Started.V)
}

// warm has a new job begin with what another one has learnt, where one is named, and waits until its
// shards stand there.
func (c *chief) warm(ctx context.Context) error {
	s := c.s
	seq, err := s.cfg.Restore.Begin(ctx, warm.Job{
		Name: s.cfg.Job, Dir: s.cfg.Dir, Spec: s.engine.Spec(), Now: c.job, Deltas: s.env.Bus.Deltas().Last, Generation: s.nextGeneration,
		Claim: func(ctx context.Context) (int64, error) {
			return c.claim(ctx, requests.Request{Reason: "begin of another job's checkpoint"})
		},
		Append: func(ctx context.Context, decide func(lineage.Job) []*training.Event) ([]uint64, error) {
			_, seqs, err := c.append(ctx, requests.Request{}, decide)
			return seqs, err
		},
	})
	if err != nil {
		return fmt.Errorf("begin from another job's checkpoint: %w", err)
	}
	if j := c.job(); j.Started.V == nil && max(seq, j.Restored.Seq) > 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // a stop is heard between two looks
		defer cancel()
		if s.awaitReturn(ctx, max(seq, j.Restored.Seq)) != nil {
			return errors.New("waiting for the shards to restore the checkpoint that the job begins with")
		}
	}
	return nil
}
