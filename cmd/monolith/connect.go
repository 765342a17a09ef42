package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/health"
)

// connection is where the logs are, for every command that needs them.
type connection struct {
	nats    string
	bzid    string
	level   string
	archive string        // folder; "": the one that the log remembers, if it is here
	bare    bool          // never an archive: the log itself is read
	to      io.Writer     // of the log; nil: standard error
	log     *slog.Logger  // of the connection; nil: none
	health  *health.State // told while NATS stays away; nil: nobody is
}

// natsEnv is where the NATS URL comes from when no flag names it.
const natsEnv = "MONOLITH_NATS"

const archiveUsage = "`folder` of the log's archive, read before the log itself; empty: the one that trim was told, if it is here (MONOLITH_ARCHIVE)"

func (c *connection) register(fs *pflag.FlagSet) {
	fs.StringVar(&c.nats, "nats", envOr(natsEnv, "nats://127.0.0.1:4222"), "NATS `URL` (MONOLITH_NATS)")
	fs.StringVar(&c.bzid, "bzid", envOr("MONOLITH_BZID", "demo"), "business `id`: the namespace of all subjects and paths (MONOLITH_BZID)")
	fs.StringVar(&c.archive, "archive", envOr("MONOLITH_ARCHIVE", ""), archiveUsage)
	fs.StringVar(&c.level, "log-level", envOr("MONOLITH_LOG", "info"), "debug, info, warn or error (MONOLITH_LOG)")
}

// validate complains about what no server is needed for.
func (c *connection) validate() error {
	// NATS splits subjects and reads wildcards by these characters, and ZooKeeper paths.
	if c.bzid == "" || len(c.bzid) > 64 || events.Escape(c.bzid) != c.bzid || strings.ContainsAny(c.bzid, "/@") {
		return fmt.Errorf("%w: --bzid %q must be 1 to 64 letters, digits, - and _: it is a token of NATS subjects and of ZooKeeper paths", errUsage, c.bzid)
	}
	if c.nats == "" {
		return nil // embedded
	}
	for _, server := range splitList(c.nats) {
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return fmt.Errorf("%w: --nats %q is no list of nats://host:port, tls://, ws:// or wss:// URLs", errUsage, redacted(c.nats))
		}
	}
	return nil
}

// redacted is a NATS URL without what a person must not see.
func redacted(s string) string {
	var out []string
	for _, server := range splitList(s) {
		if at := strings.LastIndexByte(server, '@'); at >= 0 {
			scheme, _, _ := strings.Cut(server[:at], "://")
			server = scheme + "://…" + server[at:]
		}
		out = append(out, server)
	}
	return strings.Join(out, ",")
}

func (c *connection) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.level)); err != nil {
		return nil, fmt.Errorf("%w: --log-level %q is none of debug, info, warn, error", errUsage, c.level)
	}
	var to io.Writer = os.Stderr
	if c.to != nil {
		to = c.to
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level})), nil
}

// dial connects as name, and gives up with a sentence after ten seconds.
func (c *connection) dial(ctx context.Context, name string) (bus.Bus, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b, err := jetstream.Connect(ctx, jetstream.Config{URL: c.nats, Name: name, BZID: c.bzid, Log: c.log, Health: c.health})
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s (is it running? --nats names another): %w", redacted(c.nats), err)
	}
	if c.bare {
		return b, nil
	}
	dir := c.archive
	if dir == "" {
		dir = c.remembered(ctx, b)
	}
	if dir == "" {
		later := *c
		return archivedBus{b, &untrimmed{Log: b.Log(), find: func(ctx context.Context) string { return later.remembered(ctx, b) }}}, nil
	}
	a, err := archive.Open(dir)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return archivedBus{b, a.Log(b.Log())}, nil
}

// remembered is the folder of the archive behind which the log was trimmed, if it is on
// this machine and fits; "": whoever needs what is gone hears of it then.
func (c *connection) remembered(ctx context.Context, b *jetstream.Bus) string {
	t := b.Log().(bus.Trimmer)
	cut, err := t.Cut(ctx)
	if err != nil || cut.Archive == "" {
		return ""
	}
	if err := holds(ctx, cut, b.Log()); err != nil {
		if c.log != nil {
			c.log.Warn("the archive of the trimmed log is not here: whatever needs its beginning fails until --archive names it", "folder", cut.Archive, "err", err)
		}
		return ""
	}
	return cut.Archive
}

// holds says whether the folder that the log remembers is its archive.
func holds(ctx context.Context, cut bus.Cut, log bus.Log) error {
	a, err := archive.Open(cut.Archive)
	if err != nil {
		return err
	}
	if _, last := a.Span(); last < cut.Seq {
		return fmt.Errorf("it ends at sequence %d, the log was trimmed up to %d", last, cut.Seq)
	}
	return a.Check(ctx, log)
}

// The environment says so of a NATS server that is known to sync each write.
const (
	syncedEnv    = "MONOLITH_NATS_SYNC"
	syncedAlways = "always"
)

// unsynced is the warning about a server that is not our own: no client can see what its
// sync_interval is. "" where somebody has said that it is set.
func unsynced(url string) string {
	if envOr(syncedEnv, "") == syncedAlways {
		return ""
	}
	return fmt.Sprintf("the NATS server at %s must be set to `jetstream { sync_interval: always }`, which cannot be seen from here: without it a power cut loses facts that were acked. %s=%s says that it is set", redacted(url), syncedEnv, syncedAlways)
}

// whileConnected runs f, which is to return when its context ends, until the bus answers no
// more: the error says why then.
func whileConnected(ctx context.Context, b bus.Bus, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-b.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	err := f(ctx)
	cancel()
	<-over
	return errors.Join(b.Err(), err)
}

func envOr(key, fallback string) string {
	if v := strings.TrimSpace(os.Getenv(key)); v != "" {
		return v
	}
	return fallback
}
