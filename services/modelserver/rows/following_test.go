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

// moving deltas end with an error each time, but for one message before.
type moving struct {
	bus.Deltas
	at []time.Time
}

func (m *moving) Follow(_ context.Context, from, _ uint64, _ []string, handle func(bus.StoredDelta) error) error {
	m.at = append(m.at, time.Now())
	if err := handle(bus.StoredDelta{Seq: from}); err != nil {
		return err
	}
	return errors.New("cut off")
}

// Following that is cut off again and again, and gets on each time, is no trouble, and is not put off further.
func TestFollowingThatGetsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := testFeed(func(*delta.Delta, uint64, time.Time) error { return nil }, func(Flush) {})
		deltas := &moving{}
		f.Bus, f.Health, f.Problem = deltas, health.New(), "deltas of m:ps_0"
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Follow(ctx) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := f.Health.Summary(); got != "" {
			t.Errorf("the health says %q", got)
		}
		if n := len(deltas.at); n < 20 || f.Next != uint64(n)+1 {
			t.Errorf("%d attempts in ten seconds, the next sequence is %d", n, f.Next)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Where nothing of what was to be caught up with is new, nothing is said to have become visible.
func TestCaughtUpWithNothingNew(t *testing.T) {
	f := testFeed(func(*delta.Delta, uint64, time.Time) error { return nil }, func(x Flush) { t.Errorf("served is %+v", x) })
	f.Contained[0], f.need, f.caught = 4, map[string]uint64{"s": 4}, make(chan struct{})
	d := stored(t, 4, &delta.Delta{Chunks: 1})
	d.Subject = "s"
	if err := f.handle(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	<-f.Caught()
}
