package rows

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/process/health"
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
		f := testFeed(func(*delta.Delta, uint64, time.Time) error { return nil }, func(Flush) {})
		deltas := &flaky{left: 12}
		f.Bus, f.Health, f.Problem = deltas, well, "deltas of m:ps_0"
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Follow(ctx) }()
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
			f := testFeed(func(*delta.Delta, uint64, time.Time) error { return nil }, func(Flush) {})
			f.Bus, f.Health, f.Problem = &flaky{left: failures}, health.New(), "deltas of m:ps_0"
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- f.Follow(ctx) }()
			time.Sleep(5 * time.Second) // the pauses are done, and following is not yet taken to work
			synctest.Wait()
			if got := f.Health.Summary(); got != want {
				t.Errorf("after %d failures the health says %q", failures, got)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
