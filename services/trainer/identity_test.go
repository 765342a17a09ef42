package trainer

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// TestAJobRunsAsItWasStarted: a trainer that was started for something else says what, and
// a job from before declarations were hashed is told apart by the rest alone.
func TestAJobRunsAsItWasStarted(t *testing.T) {
	e, err := step.New(trainertest.SmallSpec(), 2, 16)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{cfg: Config{Job: "j", Model: "movies", Topic: "ratings", Shards: 2}, engine: e}
	for _, tc := range []struct {
		name   string
		change func(*training.JobStarted)
		want   string
	}{
		{"alike", func(*training.JobStarted) {}, ""},
		{"begun before hashes", func(b *training.JobStarted) { b.SpecHash = "" }, ""},
		{"another declaration", func(b *training.JobStarted) { b.SpecHash = strings.Repeat("0", 64) }, "another declaration of model movies"},
		{"records named as they are", func(b *training.JobStarted) { b.Format = "json" }, ""},
		{"records of another format", func(b *training.JobStarted) { b.Format = "example" }, "format example, not json: start this trainer alike"},
		{"other shards", func(b *training.JobStarted) { b.Shards = 3 }, "start this trainer alike"},
		{"other shards, before hashes", func(b *training.JobStarted) { b.SpecHash, b.Shards = "", 3 }, "start this trainer alike"},
	} {
		b := proto.CloneOf(s.started())
		tc.change(b)
		if err := s.differs(b); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	s.cfg.Format = "example"
	if err := s.differs(&training.JobStarted{Job: "j", ModelName: "movies", Topic: "ratings", Shards: 2}); err == nil || !strings.Contains(err.Error(), "format json, not example") {
		t.Errorf("a job of JSON records and a trainer of Examples: %v", err)
	}
	if err := s.differs(s.started()); err != nil {
		t.Errorf("a job of Examples: %v", err)
	}
	if s.started().GetSpecHash() == "" {
		t.Error("the job's start does not name its declaration")
	}
}
