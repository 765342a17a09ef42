package source

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
)

const describeTimeout = 2 * time.Second

// Topic is a Kafka topic.
type Topic struct {
	Brokers []string
	Access  *kafka.Access
	Name    string
	Log     *slog.Logger
}

// Describe asks Kafka.
func (s Topic) Describe(ctx context.Context) (kafka.Topic, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	t, err := s.Access.Describe(ctx, s.Brokers, s.Name)
	if err == nil && len(t.Partitions) == 0 {
		err = fmt.Errorf("topic %s has no partitions", s.Name)
	}
	return t, err
}

// Open reads a partition, committed records only.
func (s Topic) Open(id string, partition int32, away func(error)) Partition {
	return topicPartition{kafka.NewReader(kafka.ReaderConfig{
		Brokers: s.Brokers, Access: s.Access, Topic: s.Name, TopicID: id, Partition: partition, Log: s.Log, Away: away,
	})}
}

// Limit is where the partitions end now.
func (s Topic) Limit(_ context.Context, ends map[int32]int64) (map[int32]int64, error) {
	return ends, nil
}

// Files is nil.
func (s Topic) Files(context.Context) (*training.FileSet, error) { return nil, nil }

const commitTimeout = 10 * time.Second

// Commit has the group's offsets say where the cut stands, if there is a group.
func (s Topic) Commit(ctx context.Context, group string, b *training.JobStarted, cp *training.Checkpoint) error {
	if group == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	at := make([]kafka.Committed, 0, len(cp.GetOffsets()))
	for p, offset := range cp.GetOffsets() {
		c := kafka.Committed{Partition: p, Offset: max(offset, b.GetBegins()[p]), LeaderEpoch: -1} // what had expired before is nobody's
		if epoch, ok := cp.GetLeaderEpochs()[p]; ok {
			c.LeaderEpoch = epoch
		}
		at = append(at, c)
	}
	return s.Access.Commit(ctx, s.Brokers, group, s.Name, fmt.Sprintf("checkpoint %d", cp.GetId()), at)
}

// Changed says which topic it was.
func (s Topic) Changed(b *training.JobStarted, now kafka.Topic) string {
	return fmt.Sprintf("job %s has learnt from topic %s with id %s, now it has id %s: bring that topic back, or train under a new job name", b.GetJob(), s.Name, b.GetTopicId(), now.ID)
}

// topicPartition is a reader of Kafka's.
type topicPartition struct{ *kafka.Reader }

// Place is the partition's name.
func (topicPartition) Place(r kafka.Record) (stream string, words map[string]string) {
	return fmt.Sprintf("kafka:%s/%d", r.Topic, r.Partition), r.Headers
}
