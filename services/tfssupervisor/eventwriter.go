package tfssupervisor

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/services/internal/role"
)

// factQueue bounds the facts that wait for the log; who has another one waits with it.
const factQueue = 1024

// eventWriter appends this container's facts in the order they happened, while the log is
// away too: nobody else writes the aggregate, so what it wrote last is the expected sequence.
type eventWriter struct {
	subject events.Subject
	store   role.Store
	queue   chan *server.Event
	written *prometheus.CounterVec // type
	log     *slog.Logger

	expect uint64 // run's own
}

func newEventWriter(bzid, container string, log bus.Log, written *prometheus.CounterVec, l *slog.Logger) *eventWriter {
	return &eventWriter{
		subject: server.Subject(bzid, container),
		store: role.Store{Log: log, Source: "tfs-supervisor",
			Wait: func(context.Context, uint64) error { return nil }},
		queue:   make(chan *server.Event, factQueue),
		written: written,
		log:     l,
	}
}

// say queues a fact; false when ctx ends before there is room.
func (s *eventWriter) say(ctx context.Context, e *server.Event) bool {
	select {
	case s.queue <- e:
		return true
	default:
	}
	select {
	case s.queue <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// run appends until ctx ends, then what is queued, within drain.
func (s *eventWriter) run(ctx context.Context, drain time.Duration) {
	for {
		select {
		case e := <-s.queue:
			if !s.append(ctx, e) { // ctx has ended meanwhile
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
				defer cancel()
				s.append(last, e)
				s.rest(last)
				return
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
			defer cancel()
			s.rest(last)
			return
		}
	}
}

func (s *eventWriter) rest(ctx context.Context) {
	for {
		select {
		case e := <-s.queue:
			s.append(ctx, e)
		default:
			return
		}
	}
}

// append returns false only if ctx ended before the fact was stored or refused.
func (s *eventWriter) append(ctx context.Context, e *server.Event) bool {
	_, seqs, err := s.store.Append(ctx, func() ([]bus.Draft, error) {
		return []bus.Draft{{Subject: s.subject, Event: e, Expect: s.expect}}, nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return false
		}
		s.log.Error("fact not stored", "subject", s.subject, "type", catalog.Type(e), "err", err)
		return true
	}
	s.expect = seqs[0]
	s.written.WithLabelValues(catalog.Type(e)).Inc()
	return true
}
