package chief

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

// Fits says why the topic is not the one that the job has learnt from: its offsets stand
// for nothing there.
func (s *Trainer) Fits(b *training.JobStarted, t kafka.Topic) error {
	switch {
	case b.GetTopicId() != "" && t.ID != "" && b.GetTopicId() != t.ID:
		return fmt.Errorf("%w: %s", kafka.ErrTopicChanged, s.Source.Changed(b, t))
	case len(t.Partitions) < int(b.GetPartitions()):
		return fmt.Errorf("%w: job %s has learnt from %d partitions of topic %s, now it has %d: bring that topic back, or train under a new job name", kafka.ErrTopicChanged, s.Job, b.GetPartitions(), s.Topic, len(t.Partitions))
	}
	return nil
}

// PartitionsOf is how many of the topic's partitions a job learns that has run as b,
// which may be nil. The order of a deterministic job follows from their number, so it
// keeps the one that it began with.
func (s *Trainer) PartitionsOf(b *training.JobStarted, t kafka.Topic) int32 {
	if b != nil && s.Deterministic {
		return b.GetPartitions()
	}
	return max(int32(len(t.Partitions)), b.GetPartitions())
}

// Update is what the running job has yet to take up of the topic, nil if nothing. A
// bounded job's end was fixed at its start: partitions that came later are beyond it.
func (s *Trainer) Update(b *training.JobStarted, t kafka.Topic, ends map[int32]int64) *training.Event {
	u := &training.TopicUpdated{}
	if b.GetTopicId() == "" {
		u.TopicId = t.ID
	}
	if len(b.GetEnds()) == 0 {
		u.Ends = ends
		if n := s.PartitionsOf(b, t); n > b.GetPartitions() {
			u.Partitions = n
		}
	}
	if u.TopicId == "" && u.Partitions == 0 && len(u.Ends) == 0 {
		return nil
	}
	return &training.Event{Body: &training.Event_TopicUpdated{TopicUpdated: u}}
}

// Ends lists where a bounded job ends, by partition; nil: the job has no end.
func Ends(b *training.JobStarted) []int64 {
	if len(b.GetEnds()) == 0 {
		return nil
	}
	ends := make([]int64, b.GetPartitions())
	for p := range ends {
		ends[p] = b.GetEnds()[int32(p)]
	}
	return ends
}

// LookAtTopic takes up partitions that were added, and says when the topic is no longer
// the job's.
func (c *Chief) LookAtTopic(ctx context.Context) {
	s := c.Trainer
	t, err := s.Source.Describe(ctx)
	if err != nil {
		if errors.Is(err, kafka.ErrNoTopic) {
			s.Env.Health.Fail(HealthTopic, err)
		}
		return // that Kafka is away is told by those who read
	}
	b := s.job().Started.V
	switch err := s.Fits(b, t); {
	case err != nil:
		s.Env.Health.Fail(HealthTopic, err)
		return
	case len(b.GetEnds()) == 0 && s.PartitionsOf(b, t) < int32(len(t.Partitions)):
		s.Env.Health.Fail(HealthTopic, fmt.Errorf("topic %s has %d partitions, the deterministic job %s learns %d, as it began: what is in the others is not learnt", s.Topic, len(t.Partitions), s.Job, b.GetPartitions()))
	default:
		s.Env.Health.OK(HealthTopic)
	}
	_, _, err = c.append(ctx, requests.Request{}, func(j lineage.Job) []*training.Event {
		if e := s.Update(j.Started.V, t, nil); e != nil && !j.Stopped {
			return []*training.Event{e}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("what changed of the topic could not be said, trying again", "err", err)
	}
}

// LeaderEpochs are those of the partitions in a cut that was just made: a later start
// finds by them whether the log still holds what is in the cut. None where Kafka does
// not answer; then an earlier cut has them.
func (s *Trainer) LeaderEpochs(ctx context.Context, offsets map[int32]int64) map[int32]int32 {
	t, err := s.Source.Describe(ctx)
	if err != nil || s.Fits(s.job().Started.V, t) != nil {
		s.Log.Debug("the checkpoint says no leader epochs", "err", err)
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
func (c *Chief) commit(ctx context.Context, cp *training.Checkpoint) {
	s := c.Trainer
	err := s.Source.Commit(ctx, s.Group, s.job().Started.V, cp)
	if c.committed.Changed(fmt.Sprint(err)) && err != nil {
		s.Log.Warn("the consumer group was not told where the job stands; training goes on, and tools that look at the group show an older place", "checkpoint", cp.GetId(), "err", err)
	}
}
