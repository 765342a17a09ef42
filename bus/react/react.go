// Package react runs reactions: a fact or a request enters, a decision leaves as new
// facts. The work between the log and the handler (retry, parking, panics, metrics,
// spans) is middleware on watermill's router; its messages do not leave this package.
package react

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/tracectx"
)

const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 2 * time.Second
	drain      = 30 * time.Second // for which Run waits for handlers when ctx has ended
)

// Config is what the reactions of one owner share. Log, Letters and Owner are needed.
type Config struct {
	Log     bus.Log
	Letters bus.DeadLetters
	Owner   string                                      // the role: source of its facts, and who parks
	Asked   func(events.Recorded) (events.Asked, error) // who asked for what an event says, whose errors park it; nil: as it says
	BZID    string                                      // the namespace that it owns: its reactions' places are apart from others'
	Health  *health.State                               // told of events that are tried again and again; nil: nobody looks
	Logger  *slog.Logger                                // default: none
	Tracer  trace.Tracer                                // default: none
	Metrics prometheus.Registerer                       // default: none
}

// Handler decides what follows from r. The drafts are appended together; none is fine.
// It may be called again for the same r, after a conflict, an outage or a restart, and
// so decides from state and changes nothing itself.
type Handler func(ctx context.Context, r events.Recorded) ([]bus.Draft, error)

// Reactor is a set of reactions, each with its own place in the log.
type Reactor struct {
	cfg     Config
	metrics *metrics
	ready   chan struct{}

	mu        sync.Mutex
	reactions []*reaction
	running   bool
}

// reaction is one Handle.
type reaction struct {
	r      *Reactor
	name   string
	from   uint64
	match  func(events.Recorded) bool
	handle Handler
	place  place
}

// New returns a Reactor without reactions; it starts nothing.
func New(cfg Config) *Reactor {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	return &Reactor{cfg: cfg, metrics: newMetrics(cfg.Metrics), ready: make(chan struct{})}
}

// Handle adds a reaction to every event from sequence from on for which match is true,
// one after another in the order of the log. The name is for ever and no other reaction's
// of the namespace: with the cause it makes the ids of what the reaction appends, and its
// place in the log is remembered by it.
//
// A conflict or an outage: h is called again, with growing pauses, and Health tells of it.
// Any other error, a panic, or an event that matches and cannot be decoded: the event is
// parked once with the reason, and the next one comes. What has been answered or parked
// before the start is not handed to h again; what led to nothing is if it lies behind the
// place that was remembered, so h must then lead to nothing again. Handle panics when the
// Reactor runs already or has the name already.
func (r *Reactor) Handle(name string, from uint64, match func(events.Recorded) bool, h func(context.Context, events.Recorded) ([]bus.Draft, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		panic("react: Handle after Run")
	}
	for _, other := range r.reactions {
		if other.name == name {
			panic("react: two reactions are called " + name)
		}
	}
	r.reactions = append(r.reactions, &reaction{r: r, name: name, from: from, match: match, handle: h})
}

// Ready is closed once every reaction has dealt with what the log held at the start.
func (r *Reactor) Ready() <-chan struct{} { return r.ready }

// Run reacts until ctx ends, which returns nil, or the log cannot be followed. It may
// be called once.
func (r *Reactor) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return errors.New("react: Run was called twice; make a new Reactor")
	}
	r.running = true
	reactions := r.reactions
	r.mu.Unlock()

	parent := ctx
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	logger := watermill.NewSlogLoggerWithLevelMapping(r.cfg.Logger, map[slog.Level]slog.Level{
		slog.LevelInfo: slog.LevelDebug, slog.LevelError: slog.LevelDebug, // errors are counted and parked, not logged twice
	})
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: drain}, logger)
	if err != nil {
		return fmt.Errorf("react: %w", err)
	}
	router.AddMiddleware(
		r.settle,
		r.retry,
		middleware.Recoverer,
	)
	var caughtUp sync.WaitGroup
	var subs []*subscriber
	for _, x := range reactions {
		caughtUp.Add(1)
		sub := newSubscriber(x, caughtUp.Done, fail)
		subs = append(subs, sub)
		router.AddConsumerHandler(x.name, wire.LogStream, sub, x.message)
	}
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { r.remember(reactions, stop) })
	watch.Go(func() { // ready, unless Run ends before
		done := make(chan struct{})
		go func() { caughtUp.Wait(); close(done) }()
		select {
		case <-done:
			close(r.ready)
		case <-stop:
			for _, s := range subs {
				s.caughtUp()
			}
			<-done
		}
	})
	if len(reactions) == 0 {
		<-ctx.Done()
	} else if err = router.Run(ctx); err == nil && ctx.Err() == nil {
		err = errors.New("react: the router stopped by itself")
	}
	failure := context.Cause(ctx)
	fail(nil)
	for _, s := range subs {
		if cerr := s.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
	}
	close(stop)
	watch.Wait()
	switch {
	case err != nil:
		return err
	case parent.Err() == nil && failure != nil:
		return fmt.Errorf("react: %w", failure)
	}
	return nil
}

// retry is the middleware that calls a handler until it succeeds, fails for good, or ctx
// ends.
func (r *Reactor) retry(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		d := deliveryOf(msg)
		_, err := h(msg)
		if err == nil || !retryable(err) {
			return nil, err
		}
		wait, attempts := retry.New(firstRetry, lastRetry), r.cfg.Health.Attempts("reaction "+d.x.name)
		defer attempts.Succeeded()
		for {
			r.metrics.retries.Inc()
			failed := attempts.Failed(fmt.Errorf("event %d is not settled, and those behind it wait: %w", d.event.Seq, err))
			r.cfg.Logger.Debug("reaction is tried again", "reaction", d.x.name, "seq", d.event.Seq, "err", err, "attempt", failed)
			if wait.Wait(msg.Context()) != nil {
				return nil, err
			}
			if _, err = h(msg); err == nil || !retryable(err) {
				return nil, err
			}
		}
	}
}

func retryable(err error) bool {
	return bus.Retryable(err) || errors.Is(err, bus.ErrConflict) || errors.Is(err, context.DeadlineExceeded)
}

// settle is the outermost middleware: what has failed for good is parked, and then it is
// done.
func (r *Reactor) settle(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		_, err := h(msg)
		if err == nil || msg.Context().Err() != nil {
			return nil, err
		}
		var p middleware.RecoveredPanicError
		if errors.As(err, &p) {
			r.cfg.Logger.Error("reaction panicked", "panic", p.V, "stack", p.Stacktrace)
			err = fmt.Errorf("the handler panicked: %v; this is a defect of %s", p.V, r.cfg.Owner)
		}
		d := deliveryOf(msg)
		return nil, d.x.park(msg.Context(), d.event, err)
	}
}

// message is one attempt at one event, below the middleware.
func (x *reaction) message(msg *message.Message) error {
	d := deliveryOf(msg)
	ctx, span := x.r.cfg.Tracer.Start(tracectx.With(msg.Context(), d.event.Header.Traceparent), "react "+x.name, trace.WithSpanKind(trace.SpanKindConsumer))
	defer span.End()
	start := time.Now()
	n, err := x.attempt(ctx, d.event)
	x.r.metrics.seconds.WithLabelValues(x.name).Observe(time.Since(start).Seconds())
	if err != nil {
		span.RecordError(err)
		return err
	}
	x.r.metrics.handled.WithLabelValues(x.name, "done").Inc()
	if n > 0 {
		x.r.cfg.Logger.Debug("reacted", "reaction", x.name, "cause", d.event.Seq, "events", n)
	}
	return nil
}

// attempt decides and appends.
func (x *reaction) attempt(ctx context.Context, r events.Recorded) (int, error) {
	if r.Err != nil {
		return 0, r.Err
	}
	who := r.Header.Asked.Fact()
	if x.r.cfg.Asked != nil {
		var err error
		if who, err = x.r.cfg.Asked(r); err != nil {
			return 0, err
		}
	}
	ctx = bus.WithAsked(ctx, who)
	drafts, err := x.handle(ctx, r)
	if err != nil || len(drafts) == 0 {
		return 0, err
	}
	for i := range drafts {
		h := &drafts[i].Header
		h.ID = ID(r, x.name, i)
		h.Causation = r.Header.ID
		if h.Correlation == "" {
			h.Correlation = r.Header.Correlation
		}
		if h.Correlation == "" {
			h.Correlation = r.Header.ID
		}
		if h.Source == "" {
			h.Source = x.r.cfg.Owner
		}
		if h.Traceparent == "" {
			h.Traceparent = tracectx.Of(ctx)
		}
	}
	_, err = x.r.cfg.Log.Append(ctx, drafts...)
	if errors.Is(err, wire.ErrRepeated) {
		return 0, nil // answered before, by a decision of another length
	}
	return len(drafts), err
}

// park keeps the event with the reason, however long the dead letters are away.
func (x *reaction) park(ctx context.Context, r events.Recorded, reason error) error {
	header := wire.Encode(r.Header, string(r.Subject), r.Time)
	if r.Binary {
		header[wire.ContentType] = []string{wire.Protobuf}
	}
	p := bus.Parked{
		Reason: reason.Error(), By: x.r.cfg.Owner, Stream: wire.LogStream, StreamSeq: r.Seq,
		Subject: string(r.Subject), Header: header, Data: r.Data,
	}
	wait, attempts := retry.New(firstRetry, lastRetry), x.r.cfg.Health.Attempts("letters of "+x.name)
	for {
		letter, err := x.r.cfg.Letters.Park(ctx, p)
		if err == nil {
			attempts.Succeeded()
			x.parked(r.Seq, letter, reason)
			return nil
		}
		if attempts.Failed(fmt.Errorf("event %d cannot be parked, and those behind it wait: %w", r.Seq, err)) == health.Reported {
			x.r.cfg.Logger.Warn("event cannot be parked yet", "reaction", x.name, "seq", r.Seq, "err", err)
		}
		if err := wait.Wait(ctx); err != nil {
			return err
		}
	}
}

// parked tells of a letter, or of one that had no room and was counted in a summary.
func (x *reaction) parked(seq, letter uint64, reason error) {
	result, says := "parked", "event is parked"
	if letter == 0 {
		result, says = "counted", "event is counted in the dead letters' summary: there was no room to keep it"
	}
	x.r.metrics.handled.WithLabelValues(x.name, result).Inc()
	x.r.cfg.Logger.Warn(says, "reaction", x.name, "seq", seq, "letter", letter, "reason", reason)
}

// ID is the id of the index-th event that a reaction appends for a cause: the same
// whenever and wherever it is computed, and another one for every event of the log, also
// for those that were published under one id.
func ID(cause events.Recorded, reaction string, index int) string {
	return hash(fmt.Appendf(nil, "%d:%d:%s%d:%s%d", cause.Seq, len(cause.Header.ID), cause.Header.ID, len(reaction), reaction, index))
}

// EarlierID is what the first releases took for ID: the answers in their logs have it.
func EarlierID(cause, reaction string, index int) string {
	return hash(fmt.Appendf(nil, "%d:%s%d:%s%d", len(cause), cause, len(reaction), reaction, index))
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return "r-" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16])
}
