package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

const (
	lookAtTopicEvery = 10 * time.Second
	lagEvery         = 5 * time.Second
)

// fits says why the topic is not the one that the job has learnt from: its offsets stand
// for nothing there.
func (s *Server) fits(b *training.JobStarted, t kafka.Topic) error {
	switch {
	case b.GetTopicId() != "" && t.ID != "" && b.GetTopicId() != t.ID:
		return fmt.Errorf("%w: %s", kafka.ErrTopicChanged, s.source.Changed(b, t))
	case len(t.Partitions) < int(b.GetPartitions()):
		return fmt.Errorf("%w: job %s has learnt from %d partitions of topic %s, now it has %d: bring that topic back, or train under a new job name", kafka.ErrTopicChanged, s.cfg.Job, b.GetPartitions(), s.cfg.Topic, len(t.Partitions))
	}
	return nil
}

// partitionsOf is how many of the topic's partitions a job learns that has run as b,
// which may be nil. The order of a deterministic job follows from their number, so it
// keeps the one that it began with.
func (s *Server) partitionsOf(b *training.JobStarted, t kafka.Topic) int32 {
	if b != nil && s.cfg.Deterministic {
		return b.GetPartitions()
	}
	return max(int32(len(t.Partitions)), b.GetPartitions())
}

// update is what the running job has yet to take up of the topic, nil if nothing. A
// bounded job's end was fixed at its start: partitions that came later are beyond it.
func (s *Server) update(b *training.JobStarted, t kafka.Topic, ends map[int32]int64) *training.Event {
	u := &training.TopicUpdated{}
	if b.GetTopicId() == "" {
		u.TopicId = t.ID
	}
	if len(b.GetEnds()) == 0 {
		u.Ends = ends
		if n := s.partitionsOf(b, t); n > b.GetPartitions() {
			u.Partitions = n
		}
	}
	if u.TopicId == "" && u.Partitions == 0 && len(u.Ends) == 0 {
		return nil
	}
	return &training.Event{Body: &training.Event_TopicUpdated{TopicUpdated: u}}
}

// endsOf lists where a bounded job ends, by partition; nil: the job has no end.
func endsOf(b *training.JobStarted) []int64 {
	if len(b.GetEnds()) == 0 {
		return nil
	}
	ends := make([]int64, b.GetPartitions())
	for p := range ends {
		ends[p] = b.GetEnds()[int32(p)]
	}
	return ends
}

// lookAtTopic takes up partitions that were added, and says when the topic is no longer
// the job's.
func (c *chief) lookAtTopic(ctx context.Context) {
	s := c.s
	t, err := s.source.Describe(ctx)
	if err != nil {
		if errors.Is(err, kafka.ErrNoTopic) {
			s.env.Health.Fail(healthTopic, err)
		}
		return // that Kafka is away is told by those who read
	}
	b := s.job().Started.V
	switch err := s.fits(b, t); {
	case err != nil:
		s.env.Health.Fail(healthTopic, err)
		return
	case len(b.GetEnds()) == 0 && s.partitionsOf(b, t) < int32(len(t.Partitions)):
		s.env.Health.Fail(healthTopic, fmt.Errorf("topic %s has %d partitions, the deterministic job %s learns %d, as it began: what is in the others is not learnt", s.cfg.Topic, len(t.Partitions), s.cfg.Job, b.GetPartitions()))
	default:
		s.env.Health.OK(healthTopic)
	}
	_, _, err = c.append(ctx, requests.Request{}, func(j lineage.Job) []*training.Event {
		if e := s.update(j.Started.V, t, nil); e != nil && !j.Stopped {
			return []*training.Event{e}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("what changed of the topic could not be said, trying again", "err", err)
	}
}

// leaderEpochs are those of the partitions in a cut that was just made: a later start
// finds by them whether the log still holds what is in the cut. None where Kafka does
// not answer; then an earlier cut has them.
func (s *Server) leaderEpochs(ctx context.Context, offsets map[int32]int64) map[int32]int32 {
	t, err := s.source.Describe(ctx)
	if err != nil || s.fits(s.job().Started.V, t) != nil {
		s.log.Debug("the checkpoint says no leader epochs", "err", err)
		return nil
	}
	epochs := map[int32]int32{}
	for p := range offsets {
		if int(p) < len(t.Partitions) && t.Partitions[p].LeaderEpoch >= 0 {
			epochs[p] = t.Partitions[p].LeaderEpoch
		}
	}
	return epochs
}

// commit tells Kafka where a cut stands that is saved. Nobody reads it back here.
func (c *chief) commit(ctx context.Context, cp *training.Checkpoint) {
	s := c.s
	err := s.source.Commit(ctx, s.cfg.group(s.env.BZID), s.job().Started.V, cp)
	if c.committed.Changed(fmt.Sprint(err)) && err != nil {
		s.log.Warn("the consumer group was not told where the job stands; training goes on, and tools that look at the group show an older place", "checkpoint", cp.GetId(), "err", err)
	}
}
