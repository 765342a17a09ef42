package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

func TestTopicsOfANamespace(t *testing.T) {
	for _, tc := range []struct {
		given Topics
		bzid  string
		want  Topics
		bad   string
	}{
		{Topics{}, "demo", Topics{"ratings", "predictions"}, ""},
		{Topics{}, "shop", Topics{"shop.ratings", "shop.predictions"}, ""},
		{Topics{Ratings: "all"}, "shop", Topics{"all", "shop.predictions"}, ""},
		{Topics{}, "a b", Topics{"a b.ratings", "a b.predictions"}, "--ratings-topic"},
		{Topics{"x", "x"}, "demo", Topics{"x", "x"}, "name two topics"},
	} {
		got := tc.given.Of(tc.bzid)
		err := got.Validate()
		if got != tc.want || (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%+v in %q = %+v, %v", tc.given, tc.bzid, got, err)
		}
	}
}

// Somebody has added partitions to the topic, or made it larger from the start: the
// stack takes it as it is.
func TestUpTakesATopicWithMorePartitions(t *testing.T) {
	b, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Topics: map[string]int32{"shop.ratings": 6}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	cfg := small(t)
	cfg.Logs.BZID, cfg.Kafka = "shop", b.Addr()
	s, _ := logsOnly(t, cfg)
	if n, err := kafka.Plain.Partitions(t.Context(), s.Brokers(), "shop.ratings"); n != 6 || err != nil {
		t.Errorf("the training topic has %d partitions, %v", n, err)
	}
	if n, err := kafka.Plain.Partitions(t.Context(), s.Brokers(), "shop.predictions"); n != 1 || err != nil {
		t.Errorf("the topic of impressions has %d partitions, %v", n, err)
	}
}

// The embedded Kafka forgets what is older than the flags say, and by default impressions
// after a week and ratings never.
func TestEmbeddedKafkaForgets(t *testing.T) {
	cfg := small(t)
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	new(Config).Register(fs, "")
	for flag, want := range map[string]string{"ratings-retention": "0s", "predictions-retention": "168h0m0s"} {
		if got := fs.Lookup(flag).DefValue; got != want {
			t.Errorf("--%s is %s by default, want %s", flag, got, want)
		}
	}
	cfg.Keep = Retention{Predictions: 7 * 24 * time.Hour}
	s, halt := logsOnly(t, cfg)
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: s.Brokers()})
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
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: s.Brokers(), Topic: topic})
		defer r.Close()
		first, _, err := r.Bounds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return first
	}
	wait.Seen(t, "the first two predictions, which are old, to go", func() (string, bool) {
		at := first("predictions")
		return fmt.Sprint("they begin at ", at), at == 2
	})
	if got := first("ratings"); got != 0 {
		t.Errorf("ratings begin at %d: they are kept for ever", got)
	}
}

// A damaged log keeps the stack from starting, with a sentence that names the file.
func TestUpRefusesADamagedTopic(t *testing.T) {
	cfg := small(t)
	s, halt := logsOnly(t, cfg)
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: s.Brokers()})
	defer w.Close()
	for range 3 {
		if _, err := w.Write(t.Context(), kafka.Record{Topic: "ratings", Value: []byte("rating")}); err != nil {
			t.Fatal(err)
		}
	}
	halt()
	segment := filepath.Join(cfg.Dir, "kafka", "partitions", "ratings-0", "0.dat")
	raw, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	raw[70] ^= 1 // in the first of three batches
	if err := os.WriteFile(segment, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), segment+" is damaged") {
		t.Fatal("Start =", err)
	}
}
