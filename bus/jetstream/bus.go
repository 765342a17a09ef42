// Package jetstream is the bus on NATS JetStream, embedded or external. What is
// measured about the log, and the rules that follow, stand where they are kept:
// committer.go (group commit), internal/stream (ordered replay), internal/leases (fencing).
// Messages of nats.go do not leave it.
package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/asker"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/bus/jetstream/internal/leases"
	"github.com/monolith-go/monolith/bus/jetstream/internal/letters"
	"github.com/monolith-go/monolith/bus/jetstream/internal/stream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/health"
)

// Config says how to connect. Limits of 0 leave those of an existing stream alone.
type Config struct {
	URL            string             // nats://host:port[,...], with or without user:password
	Server         *natsserver.Server // instead of URL: the embedded one, without a socket
	Name           string             // the connection's name in the server's lists; default monolith
	BZID           string             // whose letters are listed, and where letters without a bzid go
	CredsFile      string             // the user's credentials, or an NKey's seed alone
	Askers         string             // file with the public NKeys of those whose commands are answered; "": everybody's are
	Keys           mtls.Files         // TLS: the authorities to trust, the certificate to show; none: as the URL and the server say
	Replicas       int                // of each stream, which is moved to so many; default: it is left alone, a new one has as many as the log, 1 without a log
	Timeout        time.Duration      // of a call whose ctx has no deadline; default 15 s
	LogMaxBytes    int64              // MONOLITH, refuses when full; default 8 GiB
	SyncMaxBytes   int64              // MONOLITH_SYNC, discards its oldest when full; default 4 GiB
	LetterMaxBytes int64              // MONOLITH_DLQ, counts in summaries what has no room; default 1 GiB
	LetterMaxAge   time.Duration      // for which a letter is kept; default 180 days
	Look           bool               // streams are left as they are, made or amended by nobody here
	Log            *slog.Logger       // default: none
	Health         *health.State      // told while the server stays away; nil: nobody is
}

// Bus is one connection. All its methods may be called at the same time.
type Bus struct {
	cfg     Config
	moves   bool // streams get cfg.Replicas, whatever they have; set before anything else runs
	conn    *conn.Conn
	events  *committer
	deltas  *committer
	tail    *tail
	asker   *asker.Who
	letters *letters.Letters
	first   atomic.Uint64 // oldest event known to be held; guards before it are of trimmed ones
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
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.Timeout)
		defer cancel()
	}
	who, err := asker.New(cfg.CredsFile, cfg.Askers)
	if err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	how := conn.Config{URL: cfg.URL, Name: cfg.Name, CredsFile: cfg.CredsFile, Keys: cfg.Keys, Timeout: cfg.Timeout, Log: cfg.Log, Health: cfg.Health}
	if cfg.Server != nil {
		how.Server = cfg.Server
	}
	c, err := conn.Dial(ctx, how)
	if err != nil {
		return nil, err
	}
	b := &Bus{cfg: cfg, conn: c, asker: who, letters: letters.New(c, cfg.BZID, who.Sign)}
	if err := b.open(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	b.events = newCommitter(b, wire.LogStream)
	b.deltas = newCommitter(b, wire.SyncStream)
	b.tail = &tail{l: logStream{b}}
	for _, writer := range []*committer{b.events, b.deltas} {
		c.Spawn(func() { writer.run(c.Context()) })
	}
	return b, nil
}

// open makes the streams ready.
func (b *Bus) open(ctx context.Context) error {
	if b.cfg.Look {
		return nil
	}
	if err := b.reconcile(ctx); err != nil {
		return err
	}
	_, _, err := (logStream{b}).span(ctx) // guards need to know what was trimmed
	return err
}

func (b *Bus) Log() bus.Log                 { return logStream{b} }
func (b *Bus) Deltas() bus.Deltas           { return syncStream{b} }
func (b *Bus) DeadLetters() bus.DeadLetters { return b.letters }
func (b *Bus) Commands() bus.Commands       { return commands{b} }
func (b *Bus) Signals() bus.Signals         { return signals{b} }
func (b *Bus) Leases() bus.Leases           { return leases.New(b.conn) }

func (b *Bus) stream(name string) stream.Stream { return stream.Of(b.conn, name) }

// Close ends everything that was started on this connection. Appends that wait get
// bus.ErrUnavailable; leases are given up.
func (b *Bus) Close() error {
	b.conn.Close()
	return nil
}

// Done implements bus.Bus.
func (b *Bus) Done() <-chan struct{} { return b.conn.Context().Done() }

// Err implements bus.Bus.
func (b *Bus) Err() error { return b.conn.Err() }
