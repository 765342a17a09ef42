package admission

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func newGate(slots int) *Gate {
	return New(slots, prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"}))
}

// server computes so many calls at once, in their order, each for as long as takes says.
type server struct {
	gate  *Gate // nil: it takes every call
	slots chan struct{}
	takes time.Duration

	mu      sync.Mutex
	took    []time.Duration // of the calls that were answered in time
	refused []time.Duration // of those that were not let in
	late    int
}

func (s *server) call(ctx context.Context) {
	began := time.Now()
	if s.gate != nil {
		leave, err := s.gate.Admit(ctx, "m")
		if err != nil {
			s.mu.Lock()
			s.refused = append(s.refused, time.Since(began))
			s.mu.Unlock()
			return
		}
		defer leave(true)
	}
	s.slots <- struct{}{} // computes what nobody waits for, too: the worst of servers
	time.Sleep(s.takes)
	<-s.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		s.late++
		return
	}
	s.took = append(s.took, time.Since(began))
}

// load makes calls for a while, evenly, and waits for them.
func (s *server) load(rate int, lasts, within time.Duration) {
	var calls sync.WaitGroup
	for range int(lasts.Seconds() * float64(rate)) {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			s.call(ctx)
		})
		time.Sleep(time.Second / time.Duration(rate))
	}
	calls.Wait()
}

// At twice the capacity a server with a gate answers at nine tenths of it at least, all in time, and refuses
// the rest at once; without, nearly all that it computes comes too late.
func TestGoodputUnderOverload(t *testing.T) {
	const slots, takes, lasts, within = 4, 10 * time.Millisecond, 20 * time.Second, 250 * time.Millisecond
	const capacity = slots * 100
	for name, gated := range map[string]bool{"gate": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{slots: make(chan struct{}, slots), takes: takes}
				if gated {
					s.gate = newGate(slots)
				}
				s.load(2*capacity, lasts, within)
				goodput := float64(len(s.took)) / lasts.Seconds() / capacity
				if !gated {
					if goodput > 0.1 {
						t.Errorf("without a gate %.2f of the capacity are answered in time: the load proves nothing", goodput)
					}
					return
				}
				if goodput < 0.9 || s.late > 0 || len(s.refused) == 0 || slices.Max(s.refused) > 0 {
					t.Errorf("%.3f of the capacity, %d late, %d refused", goodput, s.late, len(s.refused))
				}
				slices.Sort(s.took)
				if p99 := s.took[len(s.took)*99/100]; p99 > within {
					t.Errorf("the answered p99 is %v, within %v", p99, within)
				}
				if got := testutil.ToFloat64(s.gate.refused); got != float64(len(s.refused)) {
					t.Errorf("%v counted of %d refusals", got, len(s.refused))
				}
			})
		})
	}
}

// What was measured while a server was slow is forgotten as soon as it is quick again, though calls were refused
// meanwhile; and as many as it computes at once are never refused.
func TestAServerThatRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, within = 2, 100 * time.Millisecond
		s := &server{gate: newGate(slots), slots: make(chan struct{}, slots), takes: 5 * time.Second}
		s.load(100, 30*time.Second, within)
		if len(s.took) > 0 || s.late < 10 {
			t.Fatalf("%d answered, %d late, where each takes 5 s", len(s.took), s.late)
		}
		s.takes, s.refused = 5*time.Millisecond, nil
		s.load(200, 10*time.Second, within)
		s.took, s.refused, s.late = nil, nil, 0
		s.load(200, 10*time.Second, within)
		if len(s.took) != 2000 {
			t.Errorf("%d of 2000 calls at half the capacity were answered in time, %d refused, %d late", len(s.took), len(s.refused), s.late)
		}
	})
}

// A model that does not get on leaves the others alone.
func TestModelsHaveTheirOwnLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		leave, err := g.Admit(ctx, "slow")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Admit(ctx, "slow"); err != nil {
			t.Errorf("nobody knows yet how long it takes: %v", err)
		}
		time.Sleep(20 * time.Second)
		leave(true)
		_, err = g.Admit(ctx, "slow")
		const says = "model slow is overloaded: 1 calls are before this one, an answer takes 40s or more, and the deadline is in 40s; try again in 40.001s, or ask another replica"
		if in, ok := RetryIn(err); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), says) || !ok || in != 40001*time.Millisecond {
			t.Errorf("%v, again in %v %v", err, in, ok)
		}
		for range 3 {
			if _, err := g.Admit(ctx, "quick"); err != nil {
				t.Errorf("another model: %v", err)
			}
		}
		if _, err := g.Admit(t.Context(), "slow"); err != nil {
			t.Errorf("who has no deadline waits: %v", err)
		}
		gone, leaves := context.WithCancel(t.Context())
		leaves()
		if _, err := g.Admit(gone, "quick"); status.Code(err) != codes.Canceled {
			t.Errorf("who has left: %v", err)
		}
		if _, ok := RetryIn(status.Error(codes.ResourceExhausted, "too large")); ok {
			t.Error("another refusal says when to try again")
		}
	})
}

// Calls that fail are no answers: a flood of them, which costs next to nothing, lets nobody else in.
func TestFailedCallsAreNoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		busy := func() { // one call that takes a second, beside a hundred that fail at once
			leave, err := g.Admit(t.Context(), "m")
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				failed, err := g.Admit(t.Context(), "m")
				if err != nil {
					t.Fatal(err)
				}
				failed(false)
			}
			time.Sleep(time.Second)
			leave(true)
		}
		for range 10 {
			busy()
		}
		leave, err := g.Admit(t.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		defer leave(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Admit(ctx, "m"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a call that takes two seconds is let in with one left: %v", err)
		}
	})
}
