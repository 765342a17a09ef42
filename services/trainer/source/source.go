// Package source is where a job's records come from: a Kafka topic, or files. Either has partitions
// whose records stand at offsets that name them for ever, so that what a checkpoint says is learnt
// stays learnt once, whichever it is.
package source

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
)

// Partition is one partition, read by one goroutine; Close may come from another.
type Partition interface {
	// Fetch returns the records from offset on and the offset to ask for next. It waits for
	// some, for a while, where there are none.
	Fetch(ctx context.Context, offset int64) (recs []kafka.Record, next int64, err error)
	// LeaderEpoch is that of the leader which answered the last Fetch, -1 where there is none.
	LeaderEpoch() int32
	// Bounds returns the first offset there is and the one behind the last record.
	Bounds(ctx context.Context) (first, end int64, err error)
	// Check is an error unless what was below offset in that epoch is still there.
	Check(ctx context.Context, offset int64, epoch int32) error
	// Place is where people find a record: the name of its stream, and more words by name.
	Place(r kafka.Record) (stream string, words map[string]string)
	Close()
}

// Source is all partitions.
type Source interface {
	// Describe finds out what the source is now: its id, and its partitions.
	Describe(ctx context.Context) (kafka.Topic, error)
	// Open returns a partition of the source with this id; away hears what keeps it from being
	// read, and nil once it is read again.
	Open(id string, partition int32, away func(error)) Partition
	// Limit is where a bounded job ends each of the first n partitions, by where they end now.
	Limit(ctx context.Context, ends map[int32]int64) (map[int32]int64, error)
	// Files is what a job's start says of them; nil for a topic.
	Files(ctx context.Context) (*training.FileSet, error)
	// Commit tells whoever looks after the source where a job's cut stands, as information alone.
	Commit(ctx context.Context, group string, b *training.JobStarted, cp *training.Checkpoint) error
	// Changed is the sentence about a source that is not the one with the id that was learnt from.
	Changed(b *training.JobStarted, now kafka.Topic) string
}

// Bounds is where the first n partitions of the source with this id begin, and where a bounded job
// ends them.
func Bounds(ctx context.Context, s Source, id string, n int32) (begins, ends map[int32]int64, err error) {
	begins, ends = map[int32]int64{}, map[int32]int64{}
	for p := range n {
		r := s.Open(id, p, func(error) {})
		begins[p], ends[p], err = r.Bounds(ctx)
		r.Close()
		if err != nil {
			return nil, nil, fmt.Errorf("find the bounds of the topic: %w", err)
		}
	}
	ends, err = s.Limit(ctx, ends)
	return begins, ends, err
}
