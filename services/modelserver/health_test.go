package modelserver

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/model/impression"
)

// flaky deltas end with an error so many times, and then follow.
type flaky struct {
	bus.Deltas
	left int
	at   []time.Time
}

func (f *flaky) Follow(ctx context.Context, _, _ uint64, _ []string, _ func(bus.StoredDelta) error) error {
	f.at = append(f.at, time.Now())
	if f.left--; f.left >= 0 {
		return errors.New("nobody answers")
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestFollowingThatFailsIsSeenUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well := health.New()
		f := testFeed(func(*delta.Delta, uint64, time.Time) error { return nil }, func(flush) {})
		deltas := &flaky{left: 12}
		f.bus, f.health, f.problem = deltas, well, "deltas of m:ps_0"
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.follow(ctx) }()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := well.Summary(); got != "deltas of m:ps_0: nobody answers" {
			t.Errorf("after %d failures the health says %q", len(deltas.at), got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := well.Summary(); got != "" {
			t.Errorf("while it follows the health says %q", got)
		}
		if n := len(deltas.at); n != 13 {
			t.Errorf("%d attempts, want 13", n)
		}
		if pause := deltas.at[12].Sub(deltas.at[11]); pause < time.Second || pause > 5*time.Second {
			t.Errorf("the last pause was %v: it should have grown, to 5 s at most", pause)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Two failures in a row are nothing that people should see, three are.
func TestFollowingThatFailsThreeTimesIsSeen(t *testing.T) {
	for failures, want := range map[int]string{health.Reported - 1: "", health.Reported: "deltas of m:ps_0: nobody answers"} {
		synctest.Test(t, func(t *testing.T) {
			f := testFeed(func(*delta.Delta, uint64, time.Time) error { return nil }, func(flush) {})
			f.bus, f.health, f.problem = &flaky{left: failures}, health.New(), "deltas of m:ps_0"
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- f.follow(ctx) }()
			time.Sleep(5 * time.Second) // the pauses are done, and following is not yet taken to work
			synctest.Wait()
			if got := f.health.Summary(); got != want {
				t.Errorf("after %d failures the health says %q", failures, got)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// A batch of impressions lingers for more, unless it is full or there is no time.
func TestHowLongImpressionsLinger(t *testing.T) {
	one := &impression.Impression{RequestID: "r", Model: "m"}
	for name, tc := range map[string]struct {
		queued int
		linger time.Duration
		want   int
		took   time.Duration
	}{
		"nothing, no time": {0, 0, 0, 0}, "some, no time": {3, 0, 3, 0}, "some": {3, time.Second, 4, time.Second},
		"just full": {impressionBatch, time.Second, impressionBatch, 0}, "one more": {impressionBatch + 1, time.Second, impressionBatch, 0},
		"full with what comes": {impressionBatch - 1, time.Second, impressionBatch, time.Second / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &impressions{topic: "t", metrics: newMetrics(nil), log: slog.New(slog.DiscardHandler), queue: make(chan *impression.Impression, 2*impressionBatch)}
			for range tc.queued {
				p.queue <- one
			}
			if tc.linger > 0 {
				time.AfterFunc(tc.linger/2, func() { p.queue <- one })
			}
			begin := time.Now()
			if got := p.fill(t.Context(), nil, tc.linger); len(got) != tc.want || time.Since(begin) != tc.took {
				t.Errorf("%s: %d records after %v, want %d after %v", name, len(got), time.Since(begin), tc.want, tc.took)
			}
			time.Sleep(time.Second)
		})
	}
}

func TestImpressionsThatAreLostAreSeen(t *testing.T) {
	well := health.New()
	away := true
	p := &impressions{topic: "predictions", metrics: newMetrics(nil), log: slog.New(slog.DiscardHandler), attempts: well.Attempts("impressions")}
	p.write = func(_ context.Context, recs ...kafka.Record) ([]kafka.Record, error) {
		if away {
			return nil, errors.New("no broker")
		}
		return recs, nil
	}
	write := func() { p.flush(t.Context(), p.add(nil, &impression.Impression{RequestID: "r", Model: "m"})) }
	write()
	write()
	if got := well.Summary(); got != "" {
		t.Errorf("after two failures: %q", got)
	}
	write()
	if got := well.Summary(); !strings.HasPrefix(got, "impressions: they are lost") || !strings.HasSuffix(got, "no broker") {
		t.Errorf("after three: %q", got)
	}
	away = false
	write()
	if got := well.Summary(); got != "" {
		t.Errorf("written again: %q", got)
	}
}
