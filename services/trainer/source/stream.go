package source

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/input/files"
)

// Stdin is the pattern, and no other beside it, that stands for standard input.
const Stdin = "-"

// Stream is records that are read once, by the process that holds them: one partition, which another
// start cannot have again.
type Stream struct {
	From *files.Pipe
	Name string // of the source, in place of a topic's
}

// Describe says that it is this stream.
func (s Stream) Describe(context.Context) (kafka.Topic, error) {
	return kafka.Topic{Name: s.Name, ID: s.From.ID(), Partitions: []kafka.Partition{{LeaderEpoch: -1}}}, nil
}

// Open reads the stream with this id.
func (s Stream) Open(id string, _ int32, _ func(error)) Partition { return streamPartition{s, id} }

// Limit is where the stream has come to: nobody knows its end.
func (s Stream) Limit(_ context.Context, ends map[int32]int64) (map[int32]int64, error) {
	return ends, nil
}

// Files is what stands for the stream.
func (s Stream) Files(context.Context) (*training.FileSet, error) {
	return &training.FileSet{Patterns: []string{Stdin}, Epochs: 1}, nil
}

// Commit tells nobody: nobody looks after a stream.
func (Stream) Commit(context.Context, string, *training.JobStarted, *training.Checkpoint) error {
	return nil
}

// Changed says that it cannot be resumed.
func (s Stream) Changed(b *training.JobStarted, _ kafka.Topic) string {
	return fmt.Sprintf("job %s has learnt from the standard input of a process that is gone, and what it gave cannot be read again: train another job from its checkpoint", b.GetJob())
}

// streamPartition is the one of a stream.
type streamPartition struct {
	source Stream
	id     string
}

// Fetch waits at the end of the stream until ctx ends: nothing will come.
func (p streamPartition) Fetch(ctx context.Context, offset int64) ([]kafka.Record, int64, error) {
	if p.source.From.ID() != p.id {
		return nil, offset, fmt.Errorf("%w: it is another process's standard input", kafka.ErrTopicChanged)
	}
	values, next, err := p.source.From.Fetch(ctx, offset)
	if errors.Is(err, files.ErrForgotten) {
		err = fmt.Errorf("%w: %w", kafka.ErrOutOfRange, err)
	}
	recs := make([]kafka.Record, len(values))
	for i, v := range values {
		recs[i] = kafka.Record{Topic: p.source.Name, Offset: offset + int64(i), Time: noTime, Value: v}
	}
	return recs, next, err
}

// Bounds is what is kept of the stream.
func (p streamPartition) Bounds(context.Context) (first, end int64, err error) {
	end, _ = p.source.From.End()
	return p.source.From.First(), end, nil
}

// LeaderEpoch is -1: a stream has no leader.
func (p streamPartition) LeaderEpoch() int32 { return -1 }

// Check finds nothing: the id has said it.
func (p streamPartition) Check(context.Context, int64, int32) error { return nil }

// Place is the record's number.
func (p streamPartition) Place(r kafka.Record) (stream string, words map[string]string) {
	return r.Topic + "/0", map[string]string{"record": strconv.FormatInt(r.Offset, 10)}
}

// Close leaves the stream to who has opened it.
func (p streamPartition) Close() {}
