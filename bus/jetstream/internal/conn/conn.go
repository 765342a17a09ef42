// Package conn is a connection to a NATS server that outlives outages: calls are bounded, end
// early when the connection breaks, and may be made again until the server is back.
package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/retry"
)

// Config of a Conn; jetstream.Config says what its fields are.
type Config struct {
	URL             string
	Server          nats.InProcessConnProvider // instead of URL; nil: none
	Name, CredsFile string
	Keys            mtls.Files
	Timeout         time.Duration
	Log             *slog.Logger
	Health          *health.State
}

// RequestTimeout bounds one round trip; what takes longer has an unknown outcome.
const RequestTimeout = 5 * time.Second

// Conn is one connection. All its methods may be called at the same time.
type Conn struct {
	NATS *nats.Conn
	JS   jetstream.JetStream
	Log  *slog.Logger

	cfg    Config
	link   *link
	ctx    context.Context // of everything that was started here; ends with the connection
	end    context.CancelCauseFunc
	wg     sync.WaitGroup
	closed sync.Once

	mu      sync.Mutex // guards closing: after it nothing joins wg
	closing bool
}

// Dial connects. A server that is not there yet is waited for until ctx ends.
func Dial(ctx context.Context, cfg Config) (*Conn, error) {
	c := &Conn{Log: cfg.Log, cfg: cfg, link: newLink()}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	if err := c.dial(ctx); err != nil {
		c.end(err)
		return nil, err
	}
	var err error
	if c.JS, err = jetstream.New(c.NATS, jetstream.WithDefaultTimeout(RequestTimeout)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Context ends with the connection; its cause is why.
func (c *Conn) Context() context.Context { return c.ctx }

// Timeout is that of a call whose ctx has no deadline.
func (c *Conn) Timeout() time.Duration { return c.cfg.Timeout }

// Spawn runs f until it returns, which Close waits for. It is false after Close.
func (c *Conn) Spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.wg.Go(f)
	return true
}

// Close ends everything that was started on the connection, and waits for it.
func (c *Conn) Close() {
	c.closed.Do(func() {
		c.mu.Lock()
		c.closing = true
		c.mu.Unlock()
		c.end(errClosed)
		c.wg.Wait()
		c.NATS.Close()
		c.cfg.Health.OK(problem)
	})
}

// errClosed is why a connection is over that was closed on purpose.
var errClosed = errors.New("it is closed")

// Err is why the connection was lost for good, nil while it is not or when it was closed.
func (c *Conn) Err() error {
	if err := context.Cause(c.ctx); !errors.Is(err, errClosed) {
		return err
	}
	return nil
}

// Over is what callers hear once it answers no more.
func (c *Conn) Over() error { return fmt.Errorf("%w: %w", bus.ErrUnavailable, context.Cause(c.ctx)) }

// Bound gives ctx the default deadline when it has none.
func (c *Conn) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// Retry calls f until it succeeds, fails for good, or ctx ends.
func (c *Conn) Retry(ctx context.Context, f func(context.Context) error) error {
	var pauses *retry.Backoff
	for {
		err := f(ctx)
		if err == nil || !bus.Retryable(err) {
			return err
		}
		if c.ctx.Err() != nil {
			return errors.Join(err, c.Over())
		}
		if pauses == nil {
			pauses = NewPauses()
		}
		if pauses.Wait(ctx) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

const (
	// firstAnswer bounds each of the first attempts at a question, as many as an election lasts; each
	// later one has twice the time, up to RequestTimeout.
	firstAnswer   = time.Second
	firstAttempts = 8
)

// Ask is Retry of a question, which may be asked again at any time. A cluster answers nothing at all
// about a stream while it elects its leader, neither then nor later: so no attempt waits for long before
// another one is made.
func (c *Conn) Ask(ctx context.Context, f func(context.Context) error) error {
	limit, attempts := firstAnswer, 0
	return c.Retry(ctx, func(ctx context.Context) error {
		if attempts++; attempts > firstAttempts {
			limit = min(2*limit, RequestTimeout)
		}
		ctx, cancel := c.WhileUp(ctx, limit)
		defer cancel()
		return f(ctx)
	})
}

// NewPauses are those between attempts of one call.
func NewPauses() *retry.Backoff { return retry.New(10*time.Millisecond, 500*time.Millisecond) }
