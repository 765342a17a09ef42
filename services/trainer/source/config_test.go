package source

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/input"
)

// What files may be asked for, each at its bounds.
func TestFilesConfig(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*FilesConfig)
		says   string
	}{
		"as they come":            {func(*FilesConfig) {}, ""},
		"no partitions":           {func(c *FilesConfig) { c.Partitions = -1 }, "partitions must be 1 to 1024, not -1"},
		"most partitions":         {func(c *FilesConfig) { c.Partitions = 1024 }, ""},
		"too many partitions":     {func(c *FilesConfig) { c.Partitions = 1025 }, "not 1025"},
		"no epochs":               {func(c *FilesConfig) { c.Epochs = -1 }, "epochs must be 1 to 1000, not -1"},
		"most epochs":             {func(c *FilesConfig) { c.Epochs = 1000 }, ""},
		"too many epochs":         {func(c *FilesConfig) { c.Epochs = 1001 }, "not 1001"},
		"some steps":              {func(c *FilesConfig) { c.MaxSteps = 1 }, ""},
		"negative steps":          {func(c *FilesConfig) { c.MaxSteps = -1 }, "max-steps -1 is negative"},
		"standard input":          {func(c *FilesConfig) { c.Patterns = []string{Stdin} }, ""},
		"standard input twice":    {func(c *FilesConfig) { c.Patterns, c.Epochs = []string{Stdin}, 2 }, "learnt once"},
		"standard input, in part": {func(c *FilesConfig) { c.Patterns, c.MaxSteps = []string{Stdin}, 9 }, "learnt once"},
		"a file called -":         {func(c *FilesConfig) { c.Patterns, c.Epochs = []string{Stdin, "b"}, 2 }, ""},
		"no such container":       {func(c *FilesConfig) { c.Container = "box" }, "box"},
		"a topic":                 {func(c *FilesConfig) { c.Patterns, c.Container = nil, "box" }, ""},
	} {
		c := FilesConfig{Patterns: []string{"a", "b"}}
		c.Defaults()
		tc.change(&c)
		var said []string
		if err := c.Validate(input.JSON, func(ok bool, text string, args ...any) {
			if !ok {
				said = append(said, fmt.Sprintf(text, args...))
			}
		}); err != nil {
			said = append(said, err.Error())
		}
		if all := strings.Join(said, "; "); (all == "") != (tc.says == "") || !strings.Contains(all, tc.says) {
			t.Errorf("%s: %q, want %q", name, all, tc.says)
		}
	}
	for _, tc := range []struct {
		patterns []string
		want     string
	}{{nil, ""}, {[]string{Stdin}, "stdin"}, {[]string{Stdin, "a"}, "files"}, {[]string{"a"}, "files"}} {
		if got := (&FilesConfig{Patterns: tc.patterns}).Name(); got != tc.want {
			t.Errorf("%q are called %q, want %q", tc.patterns, got, tc.want)
		}
	}
}

// A job that goes on is compared by what flags say; what else its start says of its files stays.
func TestWhatAStartSaysOfFiles(t *testing.T) {
	c := FilesConfig{Patterns: []string{"a"}, Epochs: 2, MaxSteps: 7}
	was := &training.FileSet{Files: 3, Epochs: 1, MaxSteps: 1}
	if got := c.Same(was); got.GetFiles() != 3 || got.GetEpochs() != 2 || got.GetMaxSteps() != 7 || was.GetEpochs() != 1 {
		t.Errorf("%v of %v", got, was)
	}
	if got := c.Same(nil); got.GetFiles() != 0 || got.GetEpochs() != 2 {
		t.Errorf("of a start that names none: %v", got)
	}
	if got := (&FilesConfig{}).Same(was); got != nil {
		t.Errorf("a topic: %v", got)
	}
}

// A topic is described by its broker, and one that is not there is an error.
func TestTopicAsASource(t *testing.T) {
	b, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Topics: map[string]int32{"ratings": 3}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := Topic{Brokers: []string{b.Addr()}, Name: "ratings"}
	now, err := s.Describe(t.Context())
	if err != nil || len(now.Partitions) != 3 || now.ID == "" {
		t.Errorf("%+v, %v", now, err)
	}
	said := s.Changed(&training.JobStarted{Job: "j", TopicId: "old"}, now)
	if !strings.Contains(said, "job j has learnt from topic ratings with id old, now it has id "+now.ID) {
		t.Error(said)
	}
	// A job without a group tells Kafka nothing of its cuts; one with a group cannot, once it ends.
	over, end := context.WithCancel(t.Context())
	end()
	cut := &training.Checkpoint{Id: 1, Offsets: map[int32]int64{0: 5}}
	if err := s.Commit(over, "", &training.JobStarted{}, cut); err != nil {
		t.Errorf("without a group: %v", err)
	}
	if err := s.Commit(over, "g", &training.JobStarted{}, cut); err == nil {
		t.Error("with a group: the offsets that nobody could be told passed for told")
	}
	s.Name = "none"
	if now, err := s.Describe(t.Context()); err == nil {
		t.Errorf("a topic that is not there: %+v", now)
	}
}
