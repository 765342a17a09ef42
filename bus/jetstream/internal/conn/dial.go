package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/retry"
)

const (
	// problem is what Config.Health is told about.
	problem = "nats"
	// quiet is how many attempts to reconnect may fail before that is a problem.
	quiet = 5
	// unanswered is how many pings are, before the connection counts as gone.
	unanswered = 2
)

// pingEvery is how often the server is asked whether it is there. Where there are others to go to,
// one that falls silent, as on a machine that was cut off, is left before leases end; alone, it may be
// waiting for its disk.
func pingEvery(urls string) time.Duration {
	if strings.Contains(urls, ",") {
		return time.Second
	}
	return 5 * time.Second
}

// dial connects once the server answers. From then on the connection is made anew as often
// as it breaks, also while the server refuses the credentials: its accounts may not be there
// yet, or the secret is being rotated. What the client cannot go on from ends the Conn.
func (c *Conn) dial(ctx context.Context) error {
	away := &outage{c: c, pauses: retry.New(100*time.Millisecond, time.Second)}
	opts := []nats.Option{
		nats.Name(cmp.Or(c.cfg.Name, "monolith")),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(away.pause),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1), // what cannot be sent now is ours to send again
		nats.PingInterval(pingEvery(c.cfg.URL)),
		nats.MaxPingsOutstanding(unanswered),
		nats.Timeout(2 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.link.set(false)
			if err != nil {
				away.began(err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { away.saw("nats cannot be reached", err, "") }),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.link.set(true)
			away.over(nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			away.saw("nats reports", err, subject)
		}),
		nats.ClosedHandler(func(nc *nats.Conn) {
			c.link.set(false)
			c.end(fmt.Errorf("the connection to nats was closed for good, start again: %w", lastError(nc)))
		}),
	}
	identity, err := c.identity()
	if err != nil {
		return fmt.Errorf("connect to nats: %w", err)
	}
	opts = append(opts, identity...)
	if c.cfg.Server != nil {
		opts = append(opts, nats.InProcessServer(c.cfg.Server))
	}
	return c.Retry(ctx, func(context.Context) error {
		nc, err := nats.Connect(c.cfg.URL, opts...)
		if err != nil {
			if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
				return fmt.Errorf("connect to nats: %w", err)
			}
			return fmt.Errorf("connect to nats: %w: %w", bus.ErrUnavailable, err)
		}
		c.NATS = nc
		return nil
	})
}

func lastError(nc *nats.Conn) error {
	if err := nc.LastError(); err != nil {
		return err
	}
	return nats.ErrConnectionClosed
}

// outage is what is known of the time without a connection.
type outage struct {
	c *Conn

	mu     sync.Mutex
	pauses *retry.Backoff
	last   error           // seen newest
	told   map[string]bool // what was logged in this outage; nil: there is a connection
}

// began is called when the connection is gone.
func (o *outage) began(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.told = err, map[string]bool{}
	o.c.Log.Warn("nats is away", "err", err)
}

// saw logs an error, in an outage the same one once.
func (o *outage) saw(text string, err error, subject string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = err
	if o.told != nil {
		if o.told[err.Error()] {
			return
		}
		o.told[err.Error()] = true
	}
	o.c.Log.Warn(text, "err", err, "subject", subject)
}

// pause is the time before the attempt to reconnect of that number.
func (o *outage) pause(attempt int) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if attempt <= 1 {
		o.pauses.Reset()
	}
	if attempt > quiet && o.last != nil {
		o.c.cfg.Health.Fail(problem, fmt.Errorf("no connection to the NATS server: %w", o.last))
	}
	return o.pauses.Next()
}

// over is called when there is a connection again.
func (o *outage) over(url string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.told = nil, nil
	o.c.cfg.Health.OK(problem)
	o.c.Log.Info("nats is back", "url", url)
}

// link is a context that lives as long as the connection of this moment.
type link struct {
	mu  sync.Mutex
	ctx context.Context
	end context.CancelFunc
}

func newLink() *link {
	l := &link{}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

func (l *link) set(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !up {
		l.end()
	} else if l.ctx.Err() != nil {
		l.ctx, l.end = context.WithCancel(context.Background())
	}
}

func (l *link) now() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx
}

// WhileUp is ctx until the connection of this moment is gone, and at most for d. While
// there is none it is not limited by that: the call itself says so.
func (c *Conn) WhileUp(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	current := c.link.now()
	if current.Err() != nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(current, cancel)
	return ctx, func() { stop(); cancel() }
}
