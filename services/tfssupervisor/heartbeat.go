package tfssupervisor

import (
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/replica"
)

// report replaces what heartbeats say is served, and has one sent if that is news.
func (s *Supervisor) report(replicas []*replica.Replica) {
	s.mu.Lock()
	same := slices.EqualFunc(s.replicas, replicas, func(a, b *replica.Replica) bool { return proto.Equal(a, b) })
	s.replicas = replicas
	s.mu.Unlock()
	if !same {
		s.heartbeats.Soon()
	}
}

// heartbeat is what the registry hears of this container; there is nothing to say before
// the first server has started.
func (s *Supervisor) heartbeat() *replica.Heartbeat {
	s.mu.Lock()
	srv, replicas := s.address, s.replicas
	s.mu.Unlock()
	if srv == nil {
		return nil
	}
	return &replica.Heartbeat{
		Container: s.container(s.cfg.addresses(srv)),
		Resource:  s.gauge.read(time.Now()),
		Replicas:  replicas,
	}
}

// answered counts a heartbeat.
func (s *Supervisor) answered(err error) {
	outcome := "answered"
	var refused *bus.CommandError
	switch {
	case errors.As(err, &refused):
		outcome = "refused"
	case err != nil:
		outcome = "unanswered"
	}
	s.metrics.heartbeats.WithLabelValues(outcome).Inc()
}
