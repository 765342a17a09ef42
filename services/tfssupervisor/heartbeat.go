package tfssupervisor

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
)

// heartbeatTimeout bounds one call: well below the registry's patience.
const heartbeatTimeout = time.Second

// After missedHeartbeats in a row nobody is sent to this container any more, which is a
// problem of the name registryProblem.
const (
	missedHeartbeats = 5
	registryProblem  = "heartbeats"
)

// report replaces what heartbeats say is served, and has one sent if that is news.
func (s *Supervisor) report(replicas []*replica.Replica) {
	s.mu.Lock()
	same := slices.EqualFunc(s.replicas, replicas, func(a, b *replica.Replica) bool { return proto.Equal(a, b) })
	s.replicas = replicas
	s.mu.Unlock()
	if !same {
		s.kick()
	}
}

func (s *Supervisor) kick() {
	select {
	case s.beat <- struct{}{}:
	default:
	}
}

// heartbeats calls the registry every interval, and at once when something changes,
// until ctx ends. There is nothing to say before the first server has started.
func (s *Supervisor) heartbeats(ctx context.Context) {
	t := time.NewTicker(s.cfg.Heartbeat)
	defer t.Stop()
	silent, failures := false, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-s.beat:
		}
		err := s.heartbeat(ctx, false)
		if err == nil {
			failures = 0
			s.env.Health.OK(registryProblem)
		} else if failures++; failures >= missedHeartbeats && ctx.Err() == nil {
			s.env.Health.Fail(registryProblem, err)
		}
		switch {
		case err == nil && silent:
			s.env.Log.Info("the replica registry answers again")
			silent = false
		case err != nil && !silent && ctx.Err() == nil:
			s.env.Log.Warn("heartbeat not answered; going on", "err", err)
			silent = true
		}
	}
}

// heartbeat makes one call. The last one of a life says that the container leaves.
func (s *Supervisor) heartbeat(ctx context.Context, leaving bool) error {
	s.mu.Lock()
	srv, replicas := s.address, s.replicas
	s.mu.Unlock()
	if srv == nil {
		return nil
	}
	c := s.container(s.cfg.addresses(srv))
	c.Problem = s.env.Health.Summary(registryProblem) // which is over once this arrives
	body, err := events.Marshal(s.pulse.Stamp(&replica.Heartbeat{
		Container: c,
		Resource:  s.gauge.read(time.Now()),
		Replicas:  replicas,
		Leaving:   leaving,
	}))
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	_, err = s.env.Bus.Commands().Call(call, s.env.BZID, "pulse.registry.heartbeat", body)
	outcome := "answered"
	var refused *bus.CommandError
	switch {
	case errors.As(err, &refused):
		outcome = "refused"
	case err != nil:
		outcome = "unanswered"
	}
	s.metrics.heartbeats.WithLabelValues(outcome).Inc()
	return err
}
