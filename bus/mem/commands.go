package mem

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/tracectx"
)

// callTimeout bounds a Call whose ctx has no deadline.
const callTimeout = 5 * time.Second

// endpoint is one handler of one served service.
type endpoint struct {
	handle bus.Handler
	ctx    context.Context // ends when the service is taken down
	wg     *sync.WaitGroup // calls in flight
}

// commands calls handlers in goroutines of their own, as NATS would.
type commands struct {
	bus      *Bus
	mu       sync.Mutex
	services map[string][]*endpoint // by subject; a call takes the first and moves it to the end
}

func (c *commands) Serve(ctx context.Context, s bus.Service) (func(), error) {
	if err := usable(ctx, c.bus.closed); err != nil {
		return nil, err
	}
	if err := wire.CheckService(s); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	mine := map[string]*endpoint{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, h := range s.Endpoints {
		subject := wire.Command(s.BZID, s.Name+"."+name)
		e := &endpoint{handle: h, ctx: ctx, wg: &wg}
		mine[subject] = e
		c.services[subject] = append(c.services[subject], e)
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		for subject, e := range mine {
			rest := c.services[subject][:0:0]
			for _, other := range c.services[subject] {
				if other != e {
					rest = append(rest, other)
				}
			}
			c.services[subject] = rest
		}
		c.mu.Unlock()
		cancel()
		wg.Wait()
	}), nil
}

// pick takes the next endpoint in turn and counts the call in.
func (c *commands) pick(subject string) *endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.services[subject]
	if len(all) == 0 {
		return nil
	}
	e := all[0]
	copy(all, all[1:])
	all[len(all)-1] = e
	e.wg.Add(1)
	return e
}

// Asked implements bus.Commands: nobody but this process writes here.
func (c *commands) Asked(r events.Recorded) (events.Asked, error) { return r.Header.Asked.Fact(), nil }

func (c *commands) Call(ctx context.Context, bzid, command string, payload []byte) ([]byte, error) {
	if err := usable(ctx, c.bus.closed); err != nil {
		return nil, err
	}
	subject := wire.Command(bzid, command)
	if err := wire.CheckSubject(subject, false); err != nil {
		return nil, err
	}
	if len(payload) > wire.MaxMessage {
		return nil, fmt.Errorf("call %s: %w: %d bytes", subject, bus.ErrTooLarge, len(payload))
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	e := c.pick(subject)
	if e == nil {
		return nil, fmt.Errorf("call %s: %w: nobody serves it; is that role running?", subject, bus.ErrUnavailable)
	}
	type answer struct {
		reply   []byte
		refusal *bus.CommandError
	}
	done := make(chan answer, 1)
	run, cancel := context.WithCancel(bus.WithAsked(tracectx.With(e.ctx, tracectx.Of(ctx)), bus.AskedOf(ctx)))
	stop := context.AfterFunc(ctx, cancel) // the caller's deadline is the handler's too
	request := bytes.Clone(payload)
	go func() {
		defer e.wg.Done()
		defer cancel()
		defer stop()
		reply, refusal := wire.Answer(run, e.handle, request)
		done <- answer{reply, refusal}
	}()
	select {
	case a := <-done:
		if a.refusal != nil {
			return nil, a.refusal
		}
		return a.reply, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("call %s: %w: no answer in time: %w", subject, bus.ErrUnavailable, ctx.Err())
	case <-c.bus.closed:
		return nil, fmt.Errorf("call %s: %w: it is closed", subject, bus.ErrUnavailable)
	}
}
