package modelsync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

const (
	// observer is the lease of the one model-sync of a namespace that records applied deltas.
	observer    = "model-sync.applied"
	observerTTL = 3 * time.Second
	// drainTimeout bounds the flush of a role that stops.
	drainTimeout = 2 * time.Second
	// Problems of the role's, by name.
	listenProblem = "listening to model servers"
	recordProblem = "recording applied deltas"
	// maxUnsent bounds facts that wait for the log to answer; later ones are dropped.
	maxUnsent = 1000
)

// observe listens to model servers while it holds the lease, so that several hosts do
// not record the same deltas. Between holders some signals are lost, as any may be.
func (s *Server) observe(ctx context.Context) error {
	return bus.Lead(ctx, bus.Leadership{
		Leases: s.env.Bus.Leases(), Lease: events.Escape(s.env.BZID) + "." + observer, Holder: s.cfg.Host, TTL: observerTTL,
		Log: s.env.Log, Health: s.env.Health, Problem: listenProblem,
	}, s.listen)
}

// listen hears until ctx ends.
func (s *Server) listen(ctx context.Context, term bus.Term) error {
	stop, err := s.env.Bus.Signals().Listen(ctx, bus.PulseSubject(s.env.BZID, "applied", "*"), func(subject string, payload []byte) {
		if err := s.heard.hear(subject, payload); err != nil {
			s.dropped.Inc()
			s.env.Log.Debug("signal dropped", "subject", subject, "err", err)
		}
	})
	if err != nil {
		return fmt.Errorf("listen to model servers: %w", err)
	}
	defer stop()
	term.Leading()
	<-ctx.Done()
	return nil
}

// flush makes facts of what was heard, and once more on its way out.
func (s *Server) flush(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Flush)
	defer tick.Stop()
	var unsent []bus.Draft
	recording := s.env.Health.Attempts(recordProblem)
	for {
		select {
		case <-tick.C:
			var err error
			if unsent, err = s.record(ctx, unsent); err == nil {
				recording.Succeeded()
			} else {
				recording.Failed(err)
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
			defer cancel()
			_, _ = s.record(last, unsent)
			return nil
		}
	}
}

// record appends what was left and what was heard since. It returns what the log gave no
// answer for, to be sent again unchanged, and why.
func (s *Server) record(ctx context.Context, unsent []bus.Draft) ([]bus.Draft, error) {
	fresh, dropped := s.heard.take(s.env.BZID)
	for i := range fresh {
		fresh[i].Header.ID = rand.Text()
	}
	drafts := append(unsent, fresh...)
	if over := len(drafts) - maxUnsent; over > 0 {
		drafts = drafts[over:]
		dropped += uint64(over)
	}
	s.dropped.Add(float64(dropped))
	for i, d := range drafts {
		_, err := s.env.Bus.Log().Append(ctx, d)
		switch {
		case err == nil:
			s.facts.Inc()
		case bus.Retryable(err) || errors.Is(err, bus.ErrFull) || ctx.Err() != nil:
			s.env.Log.Warn("applied deltas not recorded yet", "facts", len(drafts)-i, "err", err)
			return drafts[i:], err
		default:
			s.dropped.Inc()
			s.env.Log.Warn("applied deltas not recorded", "subject", d.Subject, "err", err)
		}
	}
	return nil, nil
}
