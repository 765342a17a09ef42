package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Committed is what a consumer group's offsets say of a partition.
type Committed struct {
	Partition   int32
	Offset      int64 // the next to be learnt
	LeaderEpoch int32 // in which the one before was read, -1: not known
}

// Commit has the group's offsets of a topic say where its readers stand, for tools that show
// lag. The group needs no members; one that has some refuses it. Nothing here reads them back.
// While no coordinator answers, as before a cluster's first group, it tries again until ctx ends.
func (a *Access) Commit(ctx context.Context, brokers []string, group, topic, note string, at []Committed) error {
	c, err := newClient(brokers, a)
	if err != nil {
		return err
	}
	defer c.Close()
	passes := func(err error) bool { return temporary(err) && !errors.Is(err, ErrNoTopic) }
	if err := retried(ctx, passes, func() error { return commit(ctx, c, group, topic, note, at) }); err != nil {
		return fmt.Errorf("commit offsets of group %s: %w", group, err)
	}
	return nil
}

func commit(ctx context.Context, c *kgo.Client, group, topic, note string, at []Committed) error {
	described, err := describe(ctx, c, topic)
	if err != nil {
		return err
	}
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = topic, idBytes(described.ID)
	for _, of := range at {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = of.Partition, of.Offset, of.LeaderEpoch, &note
		t.Partitions = append(t.Partitions, p)
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Topics = group, append(req.Topics, t)
	res, err := req.RequestWith(ctx, c)
	if err != nil {
		return unanswered(ctx, err)
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			switch {
			case err == nil:
				continue
			case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration):
				return fmt.Errorf("somebody consumes under that name, name another with --offsets-group: %w", err)
			case errors.Is(err, kerr.GroupAuthorizationFailed):
				return fmt.Errorf("allow this user READ on it, or give --offsets-group none: %w", err)
			}
			return fmt.Errorf("partition %s/%d: %w", topic, p.Partition, err)
		}
	}
	return nil
}
