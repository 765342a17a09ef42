// Package jetstream is the bus on NATS JetStream, embedded or external. What is
// measured about the log, and the rules that follow, stand in the files that keep them:
// committer.go (group commit), follow.go (ordered replay), leases.go (fencing).
// Messages of nats.go do not leave it.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
)

// Config says how to connect. Limits of 0 leave those of an existing stream alone.
type Config struct {
	URL            string        // nats://host:port[,...], with or without user:password
	Server         *Server       // instead of URL: the embedded one, without a socket
	Name           string        // the connection's name in the server's lists; default monolith
	BZID           string        // whose letters are listed, and where letters without a bzid go
	CredsFile      string        // credentials of an external server
	CAFile         string        // TLS: the authority to trust
	Replicas       int           // of each stream when it is created; default 1
	Timeout        time.Duration // of a call whose ctx has no deadline; default 15 s
	LogMaxBytes    int64         // MONOLITH, refuses when full; default 8 GiB
	SyncMaxBytes   int64         // MONOLITH_SYNC, discards its oldest when full; default 4 GiB
	LetterMaxBytes int64         // MONOLITH_DLQ, counts in summaries what has no room; default 1 GiB
	LetterMaxAge   time.Duration // for which a letter is kept; default 180 days
	Log            *slog.Logger  // default: none
}

// requestTimeout bounds one round trip; what takes longer has an unknown outcome.
const requestTimeout = 5 * time.Second

// Bus is one connection. All its methods may be called at the same time.
type Bus struct {
	cfg  Config
	log  *slog.Logger
	nc   *nats.Conn
	js   jetstream.JetStream
	link *link

	events *committer
	deltas *committer
	tail   *tail
	shares shares
	first  atomic.Uint64      // oldest event known to be held; guards before it are of trimmed ones
	stop   context.CancelFunc // ends the committers and the leases' renewals
	ctx    context.Context
	wg     sync.WaitGroup
	closed sync.Once

	mu      sync.Mutex // guards closing: after it nothing joins wg
	closing bool
}

var _ bus.Bus = (*Bus)(nil)

// Connect connects and creates the streams, or brings their configuration up to date.
// A server that is not there yet is waited for until ctx ends, or 15 s.
func Connect(ctx context.Context, cfg Config) (*Bus, error) {
	if (cfg.URL == "") == (cfg.Server == nil) {
		return nil, fmt.Errorf("connect to nats: %w: give either a URL or an embedded server", events.ErrInvalid)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 15 * time.Second
	}
	if cfg.Replicas <= 0 {
		cfg.Replicas = 1
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	b := &Bus{cfg: cfg, log: cfg.Log, link: newLink()}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if err := b.dial(ctx); err != nil {
		return nil, err
	}
	js, err := jetstream.New(b.nc, jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		b.nc.Close()
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	b.js = js
	if err := b.retry(ctx, b.reconcile); err != nil {
		b.nc.Close()
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	if _, _, err := (logStream{b}).span(ctx); err != nil { // guards need to know what was trimmed
		b.stop()
		b.nc.Close()
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	b.events = newCommitter(b, wire.LogStream)
	b.deltas = newCommitter(b, wire.SyncStream)
	b.tail = &tail{l: logStream{b}}
	for _, c := range []*committer{b.events, b.deltas} {
		b.wg.Go(func() { c.run(b.ctx) })
	}
	return b, nil
}

// dial connects once the server answers.
func (b *Bus) dial(ctx context.Context) error {
	opts := []nats.Option{
		nats.Name(orString(b.cfg.Name, "monolith")),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1), // what cannot be sent now is ours to send again
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.Timeout(2 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.link.set(false)
			if err != nil {
				b.log.Warn("nats is away", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.link.set(true)
			b.log.Info("nats is back", "url", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.log.Warn("nats reports", "error", err, "subject", subject)
		}),
	}
	if b.cfg.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(b.cfg.CredsFile))
	}
	if b.cfg.CAFile != "" {
		opts = append(opts, nats.RootCAs(b.cfg.CAFile))
	}
	if b.cfg.Server != nil {
		opts = append(opts, nats.InProcessServer(b.cfg.Server))
	}
	return b.retry(ctx, func(context.Context) error {
		nc, err := nats.Connect(b.cfg.URL, opts...)
		if err != nil {
			if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
				return fmt.Errorf("connect to nats: %w", err)
			}
			return fmt.Errorf("connect to nats: %w: %w", bus.ErrUnavailable, err)
		}
		b.nc = nc
		return nil
	})
}

func (b *Bus) Log() bus.Log                 { return logStream{b} }
func (b *Bus) Deltas() bus.Deltas           { return syncStream{b} }
func (b *Bus) DeadLetters() bus.DeadLetters { return letters{b} }
func (b *Bus) Commands() bus.Commands       { return commands{b} }
func (b *Bus) Signals() bus.Signals         { return signals{b} }
func (b *Bus) Leases() bus.Leases           { return leases{b} }

// spawn runs f until it returns, which Close waits for. It is false after Close.
func (b *Bus) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return false
	}
	b.wg.Go(f)
	return true
}

// Close ends everything that was started on this connection. Appends that wait get
// bus.ErrUnavailable; leases are given up.
func (b *Bus) Close() error {
	b.closed.Do(func() {
		b.mu.Lock()
		b.closing = true
		b.mu.Unlock()
		b.stop()
		b.wg.Wait()
		b.nc.Close()
	})
	return nil
}

// bound gives ctx the default deadline when it has none.
func (b *Bus) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, b.cfg.Timeout)
}

// retry calls f until it succeeds, fails for good, or ctx ends.
func (b *Bus) retry(ctx context.Context, f func(context.Context) error) error {
	wait := backoff{}
	for {
		err := f(ctx)
		if err == nil || !bus.Retryable(err) {
			return err
		}
		if b.ctx != nil && b.ctx.Err() != nil {
			return err
		}
		if wait.sleep(ctx) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// backoff doubles from 10 ms to 500 ms.
type backoff struct{ d time.Duration }

func (w *backoff) sleep(ctx context.Context) error {
	w.d = min(max(2*w.d, 10*time.Millisecond), 500*time.Millisecond)
	t := time.NewTimer(w.d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
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

// whileUp is ctx until the connection of this moment is gone, and at most for d. While
// there is none it is not limited by that: the call itself says so.
func (l *link) whileUp(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	l.mu.Lock()
	current := l.ctx
	l.mu.Unlock()
	if current.Err() != nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(current, cancel)
	return ctx, func() { stop(); cancel() }
}
