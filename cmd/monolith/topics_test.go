package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
)

func TestTopicsOfANamespace(t *testing.T) {
	for _, tc := range []struct {
		given topicNames
		bzid  string
		want  topicNames
		bad   string
	}{
		{topicNames{}, "demo", topicNames{"ratings", "predictions"}, ""},
		{topicNames{}, "shop", topicNames{"shop.ratings", "shop.predictions"}, ""},
		{topicNames{ratings: "all"}, "shop", topicNames{"all", "shop.predictions"}, ""},
		{topicNames{}, "a b", topicNames{"a b.ratings", "a b.predictions"}, "--ratings-topic"},
		{topicNames{"x", "x"}, "demo", topicNames{"x", "x"}, "name two topics"},
	} {
		got := tc.given.of(tc.bzid)
		err := got.validate()
		if got != tc.want || (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%+v in %q = %+v, %v", tc.given, tc.bzid, got, err)
		}
	}
}

// logsOnly starts the logs of a stack and nothing that uses them, until the test ends or
// halt is called.
func logsOnly(t *testing.T, cfg stackConfig) (s *stack, halt func()) {
	t.Helper()
	s, err := startLogs(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	halt = sync.OnceFunc(func() {
		if err := s.close(); err != nil {
			t.Errorf("close the logs: %v", err)
		}
	})
	t.Cleanup(halt)
	return s, halt
}

// Somebody has added partitions to the topic, or made it larger from the start: the
// stack takes it as it is.
func TestUpTakesATopicWithMorePartitions(t *testing.T) {
	b, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Topics: map[string]int32{"shop.ratings": 6}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	cfg := opsConfig(t.TempDir())
	cfg.conn.BZID, cfg.kafka, cfg.spans = "shop", b.Addr(), false
	s, _ := logsOnly(t, cfg)
	if n, err := kafka.Partitions(t.Context(), s.brokers(), "shop.ratings"); n != 6 || err != nil {
		t.Errorf("the training topic has %d partitions, %v", n, err)
	}
	if n, err := kafka.Partitions(t.Context(), s.brokers(), "shop.predictions"); n != 1 || err != nil {
		t.Errorf("the topic of impressions has %d partitions, %v", n, err)
	}
}

// The embedded Kafka forgets what is older than the flags say, and by default impressions
// after a week and ratings never.
func TestEmbeddedKafkaForgets(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.spans = false
	cmd := newUp()
	for flag, want := range map[string]string{"ratings-retention": "0s", "predictions-retention": "168h0m0s"} {
		if got := cmd.Flags().Lookup(flag).DefValue; got != want {
			t.Errorf("--%s is %s by default, want %s", flag, got, want)
		}
	}
	cfg.keep = retention{predictions: 7 * 24 * time.Hour}
	s, halt := logsOnly(t, cfg)
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: s.brokers()})
	defer w.Close()
	old := time.Now().Add(-8 * 24 * time.Hour)
	for _, topic := range []string{"ratings", "predictions"} {
		for _, at := range []time.Time{old, old, {}} {
			if _, err := w.Write(t.Context(), kafka.Record{Topic: topic, Value: []byte("x"), Time: at}); err != nil {
				t.Fatal(err)
			}
		}
	}
	halt()
	s, _ = logsOnly(t, cfg)
	first := func(topic string) int64 {
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: s.brokers(), Topic: topic})
		defer r.Close()
		first, _, err := r.Bounds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return first
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for first("predictions") != 2 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("predictions begin at %d, of which the first two are old", first("predictions"))
		}
	}
	if got := first("ratings"); got != 0 {
		t.Errorf("ratings begin at %d: they are kept for ever", got)
	}
}

// A damaged log keeps the stack from starting, with a sentence that names the file.
func TestUpRefusesADamagedTopic(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.spans = false
	s, halt := logsOnly(t, cfg)
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: s.brokers()})
	defer w.Close()
	for range 3 {
		if _, err := w.Write(t.Context(), kafka.Record{Topic: "ratings", Value: []byte("rating")}); err != nil {
			t.Fatal(err)
		}
	}
	halt()
	segment := filepath.Join(cfg.dir, "kafka", "partitions", "ratings-0", "0.dat")
	raw, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	raw[70] ^= 1 // in the first of three batches
	if err := os.WriteFile(segment, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := startLogs(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), segment+" is damaged") {
		t.Fatal("startLogs =", err)
	}
}

// idles says whether the log has a trainer that waits for the job's start.
func idles(log, trainer string) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, trainer) && strings.Contains(line, "it goes on once startRequested is published") {
			return true
		}
	}
	return false
}

// jobStopped lasts: what starts ended roles again starts no stopped job.
func TestStoppedJobStaysStoppedUnderUp(t *testing.T) {
	w := opsStart(t, opsConfig(t.TempDir()))
	j := w.job
	request := func(e *training.Event) {
		t.Helper()
		subject := events.Join(w.cfg.conn.BZID, "training", jobName).Request()
		if _, err := j.bus.Log().Append(w.ctx, bus.Draft{Subject: subject, Event: e, Expect: bus.Any}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(cond func(lineage.Job) bool) {
		t.Helper()
		if err := await(w.soon(), j.lineage, func(s lineage.State) bool { return cond(s.Jobs[jobName]) }); err != nil {
			t.Fatal(err)
		}
	}
	request(&training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "for good"}}})
	is(func(j lineage.Job) bool { return j.Stopped })
	w.until("every trainer was started again and waits", func() (bool, string) {
		for i := range w.cfg.trainers {
			if trainer := fmt.Sprintf("trainer=trainer-%d", i); !idles(w.log.String(), trainer) {
				return false, trainer
			}
		}
		return true, ""
	})
	is(func(j lineage.Job) bool { return j.Stopped })
	request(&training.Event{Body: &training.Event_StartRequested{StartRequested: &training.StartRequested{Reason: "again"}}})
	is(func(j lineage.Job) bool { return !j.Stopped })
}
