package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/tracectx"
)

const (
	handlers       = 64               // of one service at the same time; one more is refused
	handlerTimeout = 30 * time.Second // of a handler whose caller named none
	handlerLongest = 5 * time.Minute  // of one whose caller waits longer: a large shard takes minutes to write a checkpoint
	callTimeout    = 5 * time.Second  // of a Call whose ctx has no deadline
	drainTimeout   = 5 * time.Second  // for which a service that is taken down lets its handlers finish

	timeoutHeader = "monolith-timeout" // what the caller will wait, as a Go duration
)

// Keys of a service's metadata, which `nats micro info` shows.
const (
	bzidKey  = "bzid"
	nameKey  = "name"
	buildKey = "build" // what the process was built from
)

// commands are NATS micro services.
type commands struct{ b *Bus }

// hosted is one service while it is served.
type hosted struct {
	b    *Bus
	ctx  context.Context // ends when the service is taken down
	room chan struct{}   // of capacity handlers
	wg   sync.WaitGroup

	mu      sync.Mutex // guards stopped: after it no handler joins wg
	stopped bool
}

func (c commands) Serve(ctx context.Context, s bus.Service) (func(), error) {
	if err := wire.CheckService(s); err != nil {
		return nil, err
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h := &hosted{b: c.b, ctx: base, room: make(chan struct{}, handlers)}
	svc, err := micro.AddService(c.b.conn.NATS, micro.Config{
		Name: microName(s.Name), Version: s.Version, Description: s.Description,
		Metadata: map[string]string{bzidKey: s.BZID, nameKey: s.Name, buildKey: flags.Version()},
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serve %s: %w", s.Name, conn.Failure(err))
	}
	stop := sync.OnceFunc(func() {
		c.b.unsubscribe(svc)
		h.mu.Lock()
		h.stopped = true
		h.mu.Unlock()
		grace := time.AfterFunc(drainTimeout, cancel)
		h.wg.Wait()
		grace.Stop()
		cancel()
	})
	for _, name := range slices.Sorted(maps.Keys(s.Endpoints)) {
		handler := s.Endpoints[name]
		err := svc.AddEndpoint(microName(name), micro.HandlerFunc(func(r micro.Request) { h.admit(r, handler) }),
			micro.WithEndpointSubject(wire.Command(s.BZID, s.Name+"."+name)))
		if err != nil {
			stop()
			return nil, fmt.Errorf("serve %s.%s: %w", s.Name, name, conn.Failure(err))
		}
	}
	if err := c.b.conn.Flush(ctx); err != nil {
		stop()
		return nil, fmt.Errorf("serve %s: %w", s.Name, err)
	}
	return stop, nil
}

// unsubscribe ends what svc has subscribed to, at once or as soon as there is a connection.
// nats.go drains subscriptions, and sends one that drains to the server again if it connects
// meanwhile: the server would then hand calls to nobody, for as long as that connection lasts.
func (b *Bus) unsubscribe(svc micro.Service) {
	changed := b.conn.NATS.StatusChanged(nats.CONNECTED, nats.CLOSED)
	stop := func() {
		b.conn.NATS.RemoveStatusListener(changed)
		if err := svc.Stop(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			b.conn.Log.Debug("service was gone already", "service", svc.Info().Name, "err", err)
		}
	}
	if b.conn.NATS.IsConnected() || !b.conn.Spawn(func() {
		for b.conn.Context().Err() == nil && !b.conn.NATS.IsConnected() {
			select {
			case <-changed:
			case <-b.conn.Context().Done():
			}
		}
		stop()
	}) {
		stop()
	}
}

// admit starts the handler unless there is no room: waiting would only hide that the
// service is too slow, until the caller has gone.
func (h *hosted) admit(r micro.Request, handler bus.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		h.respond(r, nil, &bus.CommandError{Code: bus.CodeUnavailable, Message: "the service is being taken down; ask again"})
		return
	}
	select {
	case h.room <- struct{}{}:
	default:
		h.respond(r, nil, &bus.CommandError{Code: bus.CodeUnavailable, Message: fmt.Sprintf("%d calls are being answered already; ask again later", handlers)})
		return
	}
	h.wg.Go(func() {
		defer func() { <-h.room }()
		timeout := handlerTimeout
		if d, err := time.ParseDuration(r.Headers().Get(timeoutHeader)); err == nil && d > 0 {
			timeout = min(d, handlerLongest)
		}
		ctx, cancel := context.WithTimeout(h.ctx, timeout)
		defer cancel()
		ctx = tracectx.With(ctx, r.Headers().Get(wire.Traceparent))
		who, unknown := h.b.asked(r.Subject(), r.Headers(), r.Data())
		if unknown != nil {
			h.respond(r, nil, unknown)
			return
		}
		ctx = bus.WithAsked(ctx, who)
		reply, refusal := wire.Answer(ctx, handler, r.Data())
		h.respond(r, reply, refusal)
	})
}

// respond answers r by itself rather than through micro, whose Request keeps what was
// answered for its statistics without a lock: that is for handlers that answer before
// they return, and ours do not. So `nats micro stats` counts no errors.
func (h *hosted) respond(r micro.Request, reply []byte, refusal *bus.CommandError) {
	if len(reply) > wire.MaxMessage {
		refusal = &bus.CommandError{Code: bus.CodeInternal, Message: fmt.Sprintf("the answer has %d bytes, at most %d can be sent; ask for less", len(reply), wire.MaxMessage)}
	}
	if r.Reply() == "" {
		return // a publish: nobody waits
	}
	m := &nats.Msg{Subject: r.Reply(), Data: reply}
	if refusal != nil {
		m.Header = nats.Header{micro.ErrorHeader: []string{oneLine(refusal.Message)}, micro.ErrorCodeHeader: []string{refusal.Code}}
		m.Data = wire.RefusalBody(refusal)
	}
	if err := h.b.conn.NATS.PublishMsg(m); err != nil {
		h.b.conn.Log.Debug("answer could not be sent", "subject", r.Subject(), "err", err)
	}
}

func (c commands) Call(ctx context.Context, bzid, command string, payload []byte) ([]byte, error) {
	subject := wire.Command(bzid, command)
	if err := wire.CheckSubject(subject, false); err != nil {
		return nil, err
	}
	if len(payload) > wire.MaxMessage {
		return nil, fmt.Errorf("call %s: %w: %d bytes", subject, bus.ErrTooLarge, len(payload))
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(callTimeout)
	}
	ctx, cancel := c.b.conn.WhileUp(ctx, time.Until(deadline))
	defer cancel()
	m := &nats.Msg{Subject: subject, Data: payload, Header: nats.Header{timeoutHeader: {time.Until(deadline).String()}}}
	if t := tracectx.Of(ctx); t != "" {
		m.Header[wire.Traceparent] = []string{t}
	}
	if !strings.HasPrefix(subject, bus.PulseRoot+".") {
		who, err := c.b.asker.Sign(subject, payload, time.Now())
		if err != nil {
			return nil, fmt.Errorf("call %s: %w", subject, err)
		}
		wire.EncodeAsked(who, m.Header)
	}
	reply, err := c.b.conn.NATS.RequestMsgWithContext(ctx, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("call %s: %w: nobody serves it; is that role running?", subject, bus.ErrUnavailable)
	case err != nil:
		return nil, fmt.Errorf("call %s: %w", subject, conn.Failure(err))
	}
	if code := reply.Header.Get(micro.ErrorCodeHeader); code != "" {
		return nil, wire.ParseRefusal(reply.Data, code, reply.Header.Get(micro.ErrorHeader))
	}
	return reply.Data, nil
}

// microName is a name that micro takes: letters, digits, '-' and '_'.
func microName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '-'
	}, s)
}

// oneLine makes a message fit into a header.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return s[:min(len(s), 1024)]
}
