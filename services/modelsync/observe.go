package modelsync

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

const (
	// observer is the lease of the one model-sync of a namespace that records applied deltas.
	observer    = "model-sync.applied"
	observerTTL = 3 * time.Second
	// lastWords bounds the flush of a role that stops.
	lastWords = 2 * time.Second
	// maxUnsent bounds facts that wait for the log to answer; later ones are dropped.
	maxUnsent = 1000
)

// observe listens to model servers while it holds the lease, so that several hosts do
// not record the same deltas. Between holders some signals are lost, as any may be.
func (s *Server) observe(ctx context.Context) error {
	subject := bus.PulseSubject(s.env.BZID, "applied", "*")
	for {
		lease, release, err := s.env.Bus.Leases().Acquire(ctx, events.Escape(s.env.BZID)+"."+observer, s.cfg.Host, observerTTL)
		if ctx.Err() != nil {
			if err == nil {
				release()
			}
			return nil
		}
		if err == nil {
			err = s.listen(ctx, subject, lease.Lost)
			release()
		}
		if err != nil && ctx.Err() == nil {
			s.env.Log.Warn("not listening to model servers", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(observerTTL):
			}
		}
	}
}

func (s *Server) listen(ctx context.Context, subject string, lost <-chan struct{}) error {
	stop, err := s.env.Bus.Signals().Listen(ctx, subject, func(subject string, payload []byte) {
		if err := s.heard.hear(subject, payload); err != nil {
			s.dropped.Inc()
			s.env.Log.Debug("signal dropped", "subject", subject, "err", err)
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	select {
	case <-ctx.Done():
	case <-lost:
	}
	return nil
}

// flush makes facts of what was heard, and once more on its way out.
func (s *Server) flush(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Flush)
	defer tick.Stop()
	var unsent []bus.Draft
	for {
		select {
		case <-tick.C:
			unsent = s.record(ctx, unsent)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
			defer cancel()
			s.record(last, unsent)
			return nil
		}
	}
}

// record appends what was left and what was heard since. It returns what the log gave no
// answer for, to be sent again unchanged.
func (s *Server) record(ctx context.Context, unsent []bus.Draft) []bus.Draft {
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
			return drafts[i:]
		default:
			s.dropped.Inc()
			s.env.Log.Warn("applied deltas not recorded", "subject", d.Subject, "err", err)
		}
	}
	return nil
}
