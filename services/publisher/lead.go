package publisher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/plan"
)

const (
	// Between two attempts to get the lease: the first pause, and the longest.
	firstPause, lastPause = 300 * time.Millisecond, 5 * time.Second
	// failedAttempts is how many of them fail in a row before that is a problem, of the
	// name leadProblem.
	failedAttempts = 3
	leadProblem    = "leadership"
)

// errDeposed ends a leadership: somebody else has led since.
var errFenced = errors.New("another publisher leads")

// holderName tells publishers apart, two in one process too.
func holderName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	return fmt.Sprintf("%s@%s/%d-%s", source, host, os.Getpid(), rand.Text()[:6])
}

// lead waits for the lease and decides while it is held, again and again until ctx ends.
// Who waits is ready too: its views are warm, and it has nothing to decide.
func (s *Server) lead(ctx context.Context) error {
	leases, name := s.env.Bus.Leases(), events.Escape(s.env.BZID)+"."+source
	pauses, failures := retry.New(firstPause, lastPause), 0
	well := func() {
		failures = 0
		pauses.Reset()
		s.env.Health.OK(leadProblem)
	}
	for ctx.Err() == nil {
		lease, free, err := leases.TryAcquire(ctx, name, s.holder, s.cfg.LeaseTTL)
		if errors.Is(err, bus.ErrConflict) {
			s.readyOnce()
			well()
			lease, free, err = leases.Acquire(ctx, name, s.holder, s.cfg.LeaseTTL)
		}
		if err == nil {
			err = s.leadUnder(ctx, lease, well)
			free()
		}
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errFenced) {
			s.env.Log.Warn("deposed: what was being decided is not stored", "epoch", lease.Epoch)
		} else if err != nil {
			s.env.Log.Warn("not leading, trying again", "err", err)
			if failures++; failures >= failedAttempts {
				s.env.Health.Fail(leadProblem, err)
			}
		}
		_ = pauses.Wait(ctx)
	}
	return nil
}

// leadUnder decides while lease is held; it calls well once it leads. The lease alone does not fence: a process that was
// paused cannot know that it is deposed. So taking leadership is a fact, and each
// decision is appended together with it, guarded by the last such fact: after another
// publisher's, the append conflicts.
func (s *Server) leadUnder(ctx context.Context, lease bus.Lease, well func()) error {
	ctx, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-lease.Lost:
			stop()
		case <-ctx.Done():
		}
	}()
	defer func() { stop(); <-watched }()
	var led *publish.Led
	take, cancel := context.WithTimeout(ctx, giveUp)
	_, _, err := s.store.Append(take, func() ([]bus.Draft, error) {
		l := s.leader()
		// The lease's own epoch, unless the leases were lost and count anew.
		led = &publish.Led{Epoch: max(lease.Epoch, l.Epoch+1), Holder: s.holder}
		return []bus.Draft{s.ledBy(led, l.Seq)}, nil
	})
	cancel()
	if err != nil {
		return fmt.Errorf("take leadership: %w", err)
	}
	s.env.Log.Info("leading", "epoch", led.GetEpoch(), "holder", s.holder)
	s.leads.Set(1)
	defer s.leads.Set(0)
	well()
	defer s.env.Health.OK(planProblem) // somebody else's from now on
	defer clear(s.unplanned)
	return s.loop(ctx, led)
}

func (s *Server) ledBy(led *publish.Led, guard uint64) bus.Draft {
	return fact(s.env.BZID, publish.Leader, guard, &publish.Event{Body: &publish.Event_Led{Led: led}})
}

func (s *Server) leader() (l plan.Leader) {
	s.plan.Read(func(p plan.State) { l = p.Leader })
	return l
}

// fence puts led in front of what was decided. It fails when somebody else has led.
func (s *Server) fence(led *publish.Led, l plan.Leader, drafts []bus.Draft) ([]bus.Draft, error) {
	if l.Epoch != led.GetEpoch() || l.Holder != led.GetHolder() {
		return nil, fmt.Errorf("%w: %s, in epoch %d", errFenced, l.Holder, l.Epoch)
	}
	return append([]bus.Draft{s.ledBy(led, l.Seq)}, drafts...), nil
}
