// Package jetstream is the bus on NATS JetStream, embedded or external. What is
// measured about the log, and the rules that follow, stand in the files that keep them:
// committer.go (group commit), follow.go (ordered replay), leases.go (fencing).
// Messages of nats.go do not leave it.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/retry"
)

// Config says how to connect. Limits of 0 leave those of an existing stream alone.
type Config struct {
	URL            string             // nats://host:port[,...], with or without user:password
	Server         *natsserver.Server // instead of URL: the embedded one, without a socket
	Name           string             // the connection's name in the server's lists; default monolith
	BZID           string             // whose letters are listed, and where letters without a bzid go
	CredsFile      string             // credentials of an external server
	CAFile         string             // TLS: the authority to trust
	Replicas       int                // of each stream when it is created; default: as many as the log has, 1 without a log
	Timeout        time.Duration      // of a call whose ctx has no deadline; default 15 s
	LogMaxBytes    int64              // MONOLITH, refuses when full; default 8 GiB
	SyncMaxBytes   int64              // MONOLITH_SYNC, discards its oldest when full; default 4 GiB
	LetterMaxBytes int64              // MONOLITH_DLQ, counts in summaries what has no room; default 1 GiB
	LetterMaxAge   time.Duration      // for which a letter is kept; default 180 days
	Log            *slog.Logger       // default: none
	Health         *health.State      // told while the server stays away; nil: nobody is
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
	first  atomic.Uint64   // oldest event known to be held; guards before it are of trimmed ones
	ctx    context.Context // of everything that was started here; ends with the connection
	end    context.CancelCauseFunc
	wg     sync.WaitGroup
	closed sync.Once

	mu      sync.Mutex // guards closing: after it nothing joins wg
	closing bool
}

var _ bus.Bus = (*Bus)(nil)

// Connect connects and creates the streams, or brings their configuration up to date.
// A server that is not there yet, or a cluster that has no leader yet, is waited for until
// ctx ends, or 15 s.
func Connect(ctx context.Context, cfg Config) (*Bus, error) {
	if (cfg.URL == "") == (cfg.Server == nil) {
		return nil, fmt.Errorf("connect to nats: %w: give either a URL or an embedded server", events.ErrInvalid)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 15 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	b := &Bus{cfg: cfg, log: cfg.Log, link: newLink()}
	b.ctx, b.end = context.WithCancelCause(context.Background())
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if err := b.dial(ctx); err != nil {
		b.end(err)
		return nil, err
	}
	if err := b.open(ctx); err != nil {
		_ = b.Close() // it returns no error
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

// open makes the streams ready once the connection stands.
func (b *Bus) open(ctx context.Context) (err error) {
	if b.js, err = jetstream.New(b.nc, jetstream.WithDefaultTimeout(requestTimeout)); err != nil {
		return err
	}
	if err := b.reconcile(ctx); err != nil {
		return err
	}
	_, _, err = (logStream{b}).span(ctx) // guards need to know what was trimmed
	return err
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
		b.end(errClosed)
		b.wg.Wait()
		b.nc.Close()
		b.cfg.Health.OK(problem)
	})
	return nil
}

// errClosed is why a bus is over that was closed on purpose.
var errClosed = errors.New("it is closed")

// Done implements bus.Bus.
func (b *Bus) Done() <-chan struct{} { return b.ctx.Done() }

// Err implements bus.Bus.
func (b *Bus) Err() error {
	if err := context.Cause(b.ctx); !errors.Is(err, errClosed) {
		return err
	}
	return nil
}

// over is what callers hear once the bus answers no more.
func (b *Bus) over() error { return fmt.Errorf("%w: %w", bus.ErrUnavailable, context.Cause(b.ctx)) }

// bound gives ctx the default deadline when it has none.
func (b *Bus) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, b.cfg.Timeout)
}

// retry calls f until it succeeds, fails for good, or ctx ends.
func (b *Bus) retry(ctx context.Context, f func(context.Context) error) error {
	var pauses *retry.Backoff
	for {
		err := f(ctx)
		if err == nil || !bus.Retryable(err) {
			return err
		}
		if b.ctx.Err() != nil {
			return errors.Join(err, b.over())
		}
		if pauses == nil {
			pauses = newPauses()
		}
		if pauses.Wait(ctx) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// newPauses are those between attempts of one call.
func newPauses() *retry.Backoff { return retry.New(10*time.Millisecond, 500*time.Millisecond) }
