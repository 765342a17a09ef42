package servables

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/process/health"
)

// stumbling is a log whose end cannot be had for some attempts.
type stumbling struct {
	bus.Bus
	left *int
}

type stumblingLog struct {
	bus.Log
	left *int
}

func (b stumbling) Log() bus.Log { return stumblingLog{b.Bus.Log(), b.left} }

func (l stumblingLog) Last(ctx context.Context) (uint64, error) {
	if *l.left--; *l.left >= 0 {
		return 0, errors.New("no leader")
	}
	return l.Log.Last(ctx)
}

// What the log says is known only once its end is, however often that must be asked for.
func TestTheLogsEndIsInsistedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := viewing(t, false)
		s.Log = slog.New(slog.DiscardHandler)
		left := 0
		s.Bus = stumbling{b, &left}
		for what, ask := range map[string]func(context.Context) error{
			"catching up": s.catchUp,
			"an epoch":    func(ctx context.Context) error { _, _, err := s.epochOf(ctx, "j", 1); return err },
		} {
			left = health.Reported
			done := make(chan error, 1)
			go func() { done <- ask(t.Context()) }()
			if err := <-done; err != nil || left != -1 {
				t.Errorf("%s: %v, %d attempts too few", what, err, left+1)
			}
			if got := s.Health.Summary(); got != "" {
				t.Errorf("%s: afterwards the health says %q", what, got)
			}
		}
		appended(t, b, "shard", shard.Aggregate("j", 1), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{Job: "j", Shard: 1, Shards: 2, Epoch: 7, RowsAddress: "h:1"}}})
		for k, want := range map[uint32]uint64{0: 0, 1: 7} {
			if epoch, ok, err := s.epochOf(t.Context(), "j", k); err != nil || epoch != want || ok != (want > 0) {
				t.Errorf("shard %d: epoch %d, %v, %v; want %d", k, epoch, ok, err, want)
			}
		}
		left = 1 << 30
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.catchUp(ctx) }()
		time.Sleep(30 * time.Second)
		if got := s.Health.Summary(); got != "control plane: no leader" {
			t.Errorf("after many attempts the health says %q", got)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || s.Health.Summary() != "" {
			t.Errorf("at the end of ctx: %v, health %q", err, s.Health.Summary())
		}
	})
}

// What is insisted on is a problem from the third failure on, until it works.
func TestWhenInsistingIsAProblem(t *testing.T) {
	for failures, want := range map[int]string{health.Reported - 1: "", health.Reported: "name: no leader"} {
		synctest.Test(t, func(t *testing.T) {
			s := newKeeper(Options{Health: health.New(), Log: slog.New(slog.DiscardHandler)})
			calls, seen := 0, ""
			err := s.retryBus(t.Context(), "name", func(context.Context) error {
				if calls++; calls <= failures {
					return errors.New("no leader")
				}
				seen = s.Health.Summary()
				return nil
			})
			if err != nil || seen != want || s.Health.Summary() != "" {
				t.Errorf("after %d failures: %v, the health said %q, want %q", failures, err, seen, want)
			}
		})
	}
}
