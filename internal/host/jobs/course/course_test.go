package course

import (
	"math"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
)

// A start of a job is what its own facts say behind the beginning, once each; of other jobs and other starts it knows nothing.
func TestFold(t *testing.T) {
	v := View("demo", "movies", 10)
	s := v.New()
	say := func(seq uint64, bzid, aggregate string, e *training.Event) {
		subject := events.Join(bzid, training.Context, aggregate)
		s = v.Fold(s, events.Recorded{Seq: seq, Time: time.Unix(int64(seq), 0), Subject: subject, Event: e})
	}
	taken := &training.Event{Body: &training.Event_PartitionTaken{PartitionTaken: &training.PartitionTaken{}}}
	metric := func(name string, value float64, samples uint64) *training.Event {
		return &training.Event{Body: &training.Event_MetricReported{MetricReported: &training.MetricReported{Name: name, Value: value, Samples: samples, Step: samples / 10}}}
	}
	stopped := &training.Event{Body: &training.Event_JobStopped{JobStopped: &training.JobStopped{Reason: "end"}}}
	say(9, "demo", "movies/a", metric("loss", 9, 9)) // of an earlier start
	say(11, "demo", "movies/a", taken)
	say(12, "demo", "movies/b", taken)
	say(13, "demo", "films/c", taken)
	say(14, "other", "movies/d", taken)
	before := s
	say(15, "demo", "movies/a", metric("loss", 0.5, 300))
	say(15, "demo", "movies/a", metric("loss", 7, 300)) // again
	say(16, "demo", "movies/b", metric("loss", 0.9, 100))
	say(17, "demo", "movies/b", metric("auc", math.NaN(), 100))
	if len(before.Trainers["a"].Values) != 0 {
		t.Error("an earlier state has changed")
	}
	if loss := s.Known("loss"); len(s.Trainers) != 2 || !s.Began.Equal(time.Unix(11, 0)) || loss == nil || math.Abs(*loss-0.6) > 1e-12 {
		t.Errorf("%+v, loss %v", s, loss)
	}
	if s.Known("auc") != nil || s.Known("none") != nil {
		t.Errorf("an AUC that is no number is %v, a figure that nobody told %v", s.Known("auc"), s.Known("none"))
	}
	say(18, "demo", "movies", stopped)
	say(19, "demo", "movies/a", metric("loss", 0.5, 300))
	if s.Reason != "end" || s.Final() {
		t.Errorf("stopped with %q, final: %v, and b has not told its figures since", s.Reason, s.Final())
	}
	say(20, "demo", "movies/b", metric("loss", 0.5, 300))
	if !s.Final() {
		t.Error("everybody has told the figures of the end")
	}
	say(21, "demo", "movies", &training.Event{Body: &training.Event_JobStarted{JobStarted: &training.JobStarted{}}})
	if s.Reason != "" || !s.Stopped.IsZero() {
		t.Errorf("a job that goes on has stopped with %q", s.Reason)
	}
}
