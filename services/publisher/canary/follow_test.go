package canary_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/publisher/canary"
)

// measured is a canary of movies that has expired, and its measure, which does not run yet.
func measured(broker string) (*publish.CanaryDeclared, *canary.Measure) {
	of := &publish.CanaryDeclared{ModelName: "movies", Stable: 1, Candidate: 2, Share: 1, ExpiresMs: time.Now().Add(-time.Second).UnixMilli(),
		Ratings: map[int32]int64{0: 0, 1: 0}, Predictions: map[int32]int64{0: 0}, Rule: &publish.Rule{MinRatings: 30, MaxAucLoss: 1}}
	source := canary.Source{Brokers: []string{broker}, Ratings: "r", Predictions: "p", Format: input.JSON}
	return of, canary.NewMeasure(source, of, modelspec.MovieRanking(), slog.New(slog.DiscardHandler), func() {})
}

func start(t *testing.T, m *canary.Measure) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// Who measures a canary after its expiry counts what there was before it says that too little came.
func TestExpiredCanaryIsCountedFirst(t *testing.T) {
	broker, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0", Topics: map[string]int32{"r": 2, "p": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	for _, n := range []int{20, 40} { // of 30 that the rule asks for
		t.Run(fmt.Sprint(n, " ratings"), func(t *testing.T) {
			of, m := measured(broker.Addr())
			of.Candidate = int64(n)
			var recs []kafka.Record
			for i := range n {
				id := fmt.Sprint(n, "-", i)
				recs = append(recs, kafka.Record{Topic: "r", Partition: int32(i % 2), Value: fmt.Appendf(nil, `{"userId":%d,"movieId":2,"rating":%d,"timestamp":1}`, i+1, 1+4*(i%2)),
					Headers: map[string]string{impression.HeaderRequest: id, impression.HeaderPosition: "0"}})
				for _, v := range []int64{1, of.Candidate} {
					value, err := impression.Encode(&impression.Impression{RequestID: id, Model: "movies", Version: v, Score: 0.2 + 0.6*float32(i%2), Shadow: v != 1})
					if err != nil {
						t.Fatal(err)
					}
					recs = append(recs, kafka.Record{Topic: "p", Value: value})
				}
			}
			w := kafka.NewWriter(kafka.WriterConfig{Brokers: []string{broker.Addr()}})
			defer w.Close()
			if _, err := w.Write(t.Context(), recs...); err != nil {
				t.Fatal(err)
			}
			if v := m.Judge(time.Now()); v != nil {
				t.Fatalf("before anything was read: %v", v)
			}
			start(t, m)
			var v *publish.CanaryDecided
			wait.Until(t, "the verdict", func() error {
				if v = m.Judge(time.Now()); v == nil {
					return fmt.Errorf("there is none")
				}
				return nil
			})
			want, ratings := publish.CanaryDecided_EXPIRED, uint64(n)
			if n >= 30 {
				want, ratings = publish.CanaryDecided_PROMOTED, 30
			}
			if f := v.GetCandidateFigures(); v.GetVerdict() != want || f.GetRatings() < ratings || strings.Contains(v.GetReason(), "could not be read") {
				t.Errorf("verdict %v", v)
			}
		})
	}
}

// Where Kafka stays away, a canary that has expired ends after a while nevertheless, and says so.
func TestExpiryDoesNotWaitForEver(t *testing.T) {
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	of, m := measured(fmt.Sprint("127.0.0.1:", port))
	start(t, m)
	wait.Until(t, "what keeps it from counting", func() error {
		if _, _, problem := m.Figures(); problem == nil {
			return fmt.Errorf("nothing does")
		}
		return nil
	})
	expired := time.UnixMilli(of.GetExpiresMs())
	if v := m.Judge(expired.Add(9 * time.Minute)); v != nil {
		t.Errorf("within nine minutes: %v", v)
	}
	if v := m.Judge(expired.Add(11 * time.Minute)); v.GetVerdict() != publish.CanaryDecided_EXPIRED || !strings.Contains(v.GetReason(), "3 of 3 partitions could not be read to their end: ") {
		t.Errorf("after eleven: %v", v)
	}
}
