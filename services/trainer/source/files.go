package source

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/input/files"
)

// Files is records in files, which end.
type Files struct {
	Patterns   []string
	Layout     files.Layout
	Partitions int
	Epochs     int
	Batch      int64 // records of a step
	MaxSteps   int64
	Surveys    *files.Surveys
	Name       string // of the source, in place of a topic's
}

// survey reads the files, unless they were read already and have not changed.
func (s *Files) survey(ctx context.Context) (*files.Set, error) {
	paths, err := files.Expand(s.Patterns)
	if err != nil {
		return nil, err
	}
	return s.Surveys.Survey(ctx, s.Layout, paths, s.Partitions, s.Epochs)
}

// Describe surveys the files: their hash is the id.
func (s *Files) Describe(ctx context.Context) (kafka.Topic, error) {
	set, err := s.survey(ctx)
	if err != nil {
		return kafka.Topic{}, err
	}
	t := kafka.Topic{Name: s.Name, ID: set.Hash(), Partitions: make([]kafka.Partition, set.Partitions())}
	for p := range t.Partitions {
		t.Partitions[p].LeaderEpoch = -1
	}
	return t, nil
}

// Limit is where the partitions end after so many steps.
func (s *Files) Limit(ctx context.Context, _ map[int32]int64) (map[int32]int64, error) {
	set, err := s.survey(ctx)
	if err != nil {
		return nil, err
	}
	return set.Ends(s.Batch, s.MaxSteps), nil
}

// maxPatterns bounds what a fact says of how the files were named.
const maxPatterns = 100

// Files is what the survey found.
func (s *Files) Files(ctx context.Context) (*training.FileSet, error) {
	set, err := s.survey(ctx)
	if err != nil {
		return nil, err
	}
	return &training.FileSet{
		Patterns: s.Patterns[:min(len(s.Patterns), maxPatterns)], Files: uint32(set.Files()), Records: set.Records(), Bytes: set.Bytes(),
		Epochs: uint32(s.Epochs), MaxSteps: s.MaxSteps,
	}, nil
}

// Commit tells nobody: nobody looks after files.
func (*Files) Commit(context.Context, string, *training.JobStarted, *training.Checkpoint) error {
	return nil
}

// Changed says which files they were.
func (s *Files) Changed(b *training.JobStarted, now kafka.Topic) string {
	f := b.GetFiles()
	return fmt.Sprintf("job %s has learnt from %d files with %d records (hash %.12s) in %d partitions, now their hash is %.12s: bring the files back as they were, in their order, or train under a new job name",
		b.GetJob(), f.GetFiles(), f.GetRecords(), b.GetTopicId(), b.GetPartitions(), now.ID)
}

// Open reads a partition of the files with this hash.
func (s *Files) Open(id string, partition int32, _ func(error)) Partition {
	return &filePartition{source: s, id: id, partition: partition}
}

// filePartition is a partition of files. Its reader is opened by the first call.
type filePartition struct {
	source    *Files
	id        string
	partition int32

	mu     sync.Mutex // one call at a time; Close comes from another goroutine
	set    *files.Set
	reader *files.Reader
}

// open makes sure that the files are those that are meant.
func (p *filePartition) open(ctx context.Context) error {
	if p.set != nil {
		return nil
	}
	set, err := p.source.survey(ctx)
	if err != nil {
		return err
	}
	if set.Hash() != p.id || p.partition >= set.Partitions() {
		return fmt.Errorf("%w: the files have the hash %.12s, those that were learnt from %.12s", kafka.ErrTopicChanged, set.Hash(), p.id)
	}
	p.set, p.reader = set, set.Open(p.partition)
	return nil
}

// noTime is the time of a record in a file: none, so that no row expires by it.
var noTime = time.Unix(0, 0)

// Fetch waits at the end of the partition until ctx ends: nothing will come.
func (p *filePartition) Fetch(ctx context.Context, offset int64) ([]kafka.Record, int64, error) {
	values, next, err := p.fetch(ctx, offset)
	if errors.Is(err, files.ErrChanged) {
		err = fmt.Errorf("%w: %w", kafka.ErrTopicChanged, err)
	}
	if err != nil {
		return nil, offset, err
	}
	if len(values) == 0 {
		<-ctx.Done()
		return nil, offset, ctx.Err()
	}
	recs := make([]kafka.Record, len(values))
	for i, v := range values {
		recs[i] = kafka.Record{Topic: p.source.Name, Partition: p.partition, Offset: offset + int64(i), Time: noTime, Value: v}
	}
	return recs, next, nil
}

func (p *filePartition) fetch(ctx context.Context, offset int64) ([][]byte, int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.open(ctx); err != nil {
		return nil, offset, err
	}
	return p.reader.Fetch(ctx, offset)
}

// Bounds is the whole of the partition.
func (p *filePartition) Bounds(ctx context.Context) (first, end int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.open(ctx); err != nil {
		return 0, 0, err
	}
	return 0, p.set.End(p.partition), nil
}

// LeaderEpoch is -1: files have no leader.
func (p *filePartition) LeaderEpoch() int32 { return -1 }

// Check finds nothing: the hash has said it.
func (p *filePartition) Check(context.Context, int64, int32) error { return nil }

// Place is the file that a record stands in, and its number there.
func (p *filePartition) Place(r kafka.Record) (stream string, words map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	path, n := p.set.Place(p.partition, r.Offset)
	return fmt.Sprintf("%s/%d", r.Topic, r.Partition), map[string]string{"file": path, "record": strconv.FormatInt(n, 10)}
}

// Close lets go of the file that is open.
func (p *filePartition) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reader != nil {
		p.reader.Close()
	}
}
