package source

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/input/files"
)

// source is two files, of 3 and of 2 records, learnt twice.
func source(t *testing.T) *Files {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"a": "0\n1\n2\n", "b": "3\n4\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Files{Patterns: []string{filepath.Join(dir, "*")}, Partitions: 1, Epochs: 2, Batch: 4, Surveys: new(files.Surveys), Name: "files"}
}

// A source of files has their hash for its id, whole offsets, and ends where its limit does.
func TestFilesAsASource(t *testing.T) {
	s, ctx := source(t), t.Context()
	topic, err := s.Describe(ctx)
	if err != nil || len(topic.Partitions) != 1 || topic.Partitions[0].LeaderEpoch != -1 || len(topic.ID) != 64 {
		t.Fatalf("%+v, %v", topic, err)
	}
	p := s.Open(topic.ID, 0, nil)
	defer p.Close()
	first, end, err := p.Bounds(ctx)
	if err != nil || first != 0 || end != 10 {
		t.Errorf("from %d to %d, %v", first, end, err)
	}
	if err := p.Check(ctx, 7, 3); err != nil {
		t.Error(err)
	}
	recs, next, err := p.Fetch(ctx, 4)
	var values strings.Builder
	for i, r := range recs {
		values.Write(r.Value)
		if r.Offset != int64(4+i) || r.Topic != "files" || r.Partition != 0 || r.Time.Unix() != 0 {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if err != nil || next != 10 || values.String() != "401234" {
		t.Errorf("%q, then %d, %v", values.String(), next, err)
	}
	stream, words := p.Place(kafka.Record{Topic: "files", Offset: 8})
	if stream != "files/0" || !maps.Equal(words, map[string]string{"file": strings.TrimSuffix(s.Patterns[0], "*") + "b", "record": "0"}) {
		t.Errorf("%q, %v", stream, words)
	}
	soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if recs, next, err := p.Fetch(soon, 10); !errors.Is(err, context.DeadlineExceeded) || len(recs) != 0 || next != 10 {
		t.Errorf("at the end: %d records, then %d, %v", len(recs), next, err)
	}
	for steps, want := range map[int64]int64{0: 10, 2: 8, 3: 10} {
		s.MaxSteps = steps
		ends, err := s.Limit(ctx, nil)
		if err != nil || ends[0] != want || len(ends) != 1 {
			t.Errorf("%d steps end at %v, %v", steps, ends, err)
		}
	}
	s.MaxSteps = 3
	f, err := s.Files(ctx)
	if err != nil || f.GetFiles() != 2 || f.GetRecords() != 5 || f.GetBytes() != 10 || f.GetEpochs() != 2 || f.GetMaxSteps() != 3 || len(f.GetPatterns()) != 1 {
		t.Errorf("%v, %v", f, err)
	}
}

// Files that are not those that were learnt are none to read on in.
func TestOtherFiles(t *testing.T) {
	s, ctx := source(t), t.Context()
	topic, err := s.Describe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Open(topic.ID, 1, nil).Bounds(ctx); !errors.Is(err, kafka.ErrTopicChanged) {
		t.Errorf("a second partition of one: %v", err)
	}
	open := s.Open(topic.ID, 0, nil)
	if _, _, err := open.Fetch(ctx, 0); err != nil {
		t.Fatal(err)
	}
	open.Close()
	if err := os.WriteFile(strings.TrimSuffix(s.Patterns[0], "*")+"b", []byte("5\n6\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open.Fetch(ctx, 3); !errors.Is(err, kafka.ErrTopicChanged) {
		t.Errorf("read on in them: %v", err)
	}
	other := s.Open(topic.ID, 0, nil)
	defer other.Close()
	if _, _, err := other.Bounds(ctx); !errors.Is(err, kafka.ErrTopicChanged) {
		t.Errorf("bounds: %v", err)
	}
	if _, _, err := other.Fetch(ctx, 0); !errors.Is(err, kafka.ErrTopicChanged) {
		t.Errorf("read from the first one on: %v", err)
	}
	now, err := s.Describe(ctx)
	if err != nil || now.ID == topic.ID {
		t.Fatalf("%s, then %s, %v", topic.ID, now.ID, err)
	}
	said := s.Changed(&training.JobStarted{Job: "j", TopicId: topic.ID, Partitions: 1, Files: &training.FileSet{Files: 2, Records: 5}}, now)
	if !strings.Contains(said, "job j has learnt from 2 files with 5 records") || !strings.Contains(said, now.ID[:12]) {
		t.Error(said)
	}
	s.Patterns = []string{"no-such"}
	for name, ask := range map[string]func() error{
		"describe": func() error { _, err := s.Describe(ctx); return err },
		"limit":    func() error { _, err := s.Limit(ctx, nil); return err },
		"files":    func() error { _, err := s.Files(ctx); return err },
		"bounds":   func() error { _, _, err := s.Open("", 0, nil).Bounds(ctx); return err },
	} {
		if err := ask(); !errors.Is(err, files.ErrNone) {
			t.Errorf("%s of files that are gone: %v", name, err)
		}
	}
}
