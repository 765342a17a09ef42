package publisher

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/projections/plan"
)

// leadProblem is the name of the problem of a publisher that cannot lead.
const leadProblem = "leadership"

// holderName tells publishers apart, two in one process too.
func holderName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	return fmt.Sprintf("%s@%s/%d-%s", source, host, os.Getpid(), rand.Text()[:6])
}

// lead decides while this publisher holds the lease, again and again until ctx ends. Who
// waits is ready too: its views are warm, and it has nothing to decide.
func (s *Server) lead(ctx context.Context) error {
	return bus.Lead(ctx, bus.Leadership{
		Leases: s.env.Bus.Leases(), Lease: events.Escape(s.env.BZID) + "." + source, Holder: s.holder, TTL: s.cfg.LeaseTTL,
		Log: s.env.Log, Health: s.env.Health, Problem: leadProblem, Standby: s.readyOnce,
	}, s.leadTerm)
}

// leadTerm decides while the lease is held. Taking leadership is a fact, and each decision
// is appended together with it, guarded by the last such fact: after another publisher's,
// the append conflicts.
func (s *Server) leadTerm(ctx context.Context, term bus.Term) error {
	var led *publish.Led
	take, cancel := context.WithTimeout(ctx, giveUp)
	_, _, err := s.store.Append(take, func() ([]bus.Draft, error) {
		l := s.leader()
		// The lease's own epoch, unless the leases were lost and count anew.
		led = &publish.Led{Epoch: max(term.Epoch, l.Epoch+1), Holder: s.holder}
		return []bus.Draft{s.ledBy(led, l.Seq)}, nil
	})
	cancel()
	if err != nil {
		return fmt.Errorf("take leadership: %w", err)
	}
	s.env.Log.Info("leading", "epoch", led.GetEpoch(), "holder", s.holder)
	s.leads.Set(1)
	defer s.leads.Set(0)
	term.Leading()
	defer s.env.Health.OK(planProblem) // somebody else's from now on
	defer clear(s.unplanned)
	now := &leadership{led: led, running: map[string]*running{}}
	s.term.Store(now)
	defer now.end()
	defer s.term.Store(nil)
	return s.loop(ctx, led)
}

func (s *Server) ledBy(led *publish.Led, expect uint64) bus.Draft {
	return fact(s.env.BZID, publish.Leader, expect, &publish.Event{Body: &publish.Event_Led{Led: led}})
}

func (s *Server) leader() (l plan.Leader) {
	s.plan.Read(func(p plan.State) { l = p.Leader })
	return l
}

// fence puts led in front of what was decided. It fails when somebody else has led.
func (s *Server) fence(led *publish.Led, l plan.Leader, drafts []bus.Draft) ([]bus.Draft, error) {
	if l.Epoch != led.GetEpoch() || l.Holder != led.GetHolder() {
		return nil, fmt.Errorf("%w: %s, in epoch %d", bus.ErrFenced, l.Holder, l.Epoch)
	}
	return append([]bus.Draft{s.ledBy(led, l.Seq)}, drafts...), nil
}
