// Package connect is how a process finds the logs: the flags that say where NATS and the
// archive are, and one connection to both.
package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/process/health"
)

// Config is where the logs are, for every command that needs them.
type Config struct {
	NATS    string
	BZID    string
	Level   string
	Keys    mtls.Files    // of the connection to NATS: the server's authorities, the certificate that it is shown
	Creds   string        // file with the NATS user's JWT and seed, or an NKey's seed alone
	Askers  string        // file with the keys of those whose commands are answered; "": everybody's are
	Archive string        // folder; "": the one that the log remembers, if it is here
	Bare    bool          // never an archive: the log itself is read
	Copies  int           // of each stream on the servers of a cluster; 0: streams are left as they are
	Look    bool          // streams are left as they are: whoever looks mends nothing
	To      io.Writer     // of the log; nil: standard error
	Log     *slog.Logger  // of the connection; nil: none
	Health  *health.State // told while NATS stays away; nil: nobody is
}

// EnvNATS is where the NATS URL comes from when no flag names it.
const EnvNATS = "MONOLITH_NATS"

// ArchiveUsage explains --archive, for commands that bind it themselves.
const ArchiveUsage = "`folder` of the log's archive, read before the log itself; empty: the one that trim was told, if it is here (MONOLITH_ARCHIVE)"

// Register binds the flags that every command with a connection has.
func (c *Config) Register(fs *pflag.FlagSet) {
	fs.StringVar(&c.NATS, "nats", flags.Env(EnvNATS, "nats://127.0.0.1:4222"), "NATS `URL` (MONOLITH_NATS)")
	c.RegisterKeys(fs)
	fs.StringVar(&c.BZID, "bzid", flags.Env("MONOLITH_BZID", "demo"), "business `id`: the namespace of all subjects and paths (MONOLITH_BZID)")
	fs.StringVar(&c.Archive, "archive", flags.Env("MONOLITH_ARCHIVE", ""), ArchiveUsage)
	fs.StringVar(&c.Level, "log-level", flags.Env("MONOLITH_LOG", "info"), "debug, info, warn or error (MONOLITH_LOG)")
}

// RegisterKeys binds the flags of how NATS is told who asks.
func (c *Config) RegisterKeys(fs *pflag.FlagSet) {
	for _, f := range c.keyFlags() {
		fs.StringVar(f.to, f.name, flags.Env(f.env, ""), f.usage+" ("+f.env+")")
	}
}

// EnvReplicas is where --log-replicas comes from when no flag says it.
const EnvReplicas = "MONOLITH_LOG_REPLICAS"

// RegisterReplicas binds --log-replicas, for who makes the streams.
func (c *Config) RegisterReplicas(fs *pflag.FlagSet) {
	n, err := strconv.Atoi(flags.Env(EnvReplicas, "0"))
	if err != nil {
		n = -1 // which Validate refuses
	}
	fs.IntVar(&c.Copies, "log-replicas", n, "`number` of NATS servers on which each stream lies: 1, 3 or 5; streams that are there are moved to so many; 0: they are left as they are, new ones lie where the log does ("+EnvReplicas+")")
}

// keyFlag is one of those flags.
type keyFlag struct {
	to               *string
	name, env, usage string
}

func (c *Config) keyFlags() []keyFlag {
	return []keyFlag{
		{&c.Keys.CA, "nats-ca", "MONOLITH_NATS_CA", "`file` with the authorities (PEM) that sign the NATS servers' certificates; empty: the system's, and TLS only where the URL or the server asks for it"},
		{&c.Keys.Cert, "nats-cert", "MONOLITH_NATS_CERT", "`file` with the certificate (PEM) that NATS is shown; read anew at each connection when it has changed"},
		{&c.Keys.Key, "nats-key", "MONOLITH_NATS_KEY", "`file` with its private key (PEM)"},
		{&c.Creds, "nats-creds", "MONOLITH_NATS_CREDS", "`file` with the NATS user's credentials (a JWT and its seed), or with an NKey's seed alone"},
		{&c.Askers, "nats-askers", "MONOLITH_NATS_ASKERS", "`file` with a name and a public NKey on each line, such as askers of monolith auth init: nobody else's commands are answered, and facts say who asked; empty: everybody's are"},
	}
}

// Env is what a child process is told in its environment, so that it connects likewise:
// arguments are read by every user of the machine, and those of a model server stand in a fact.
func (c *Config) Env() []string {
	env := []string{EnvNATS + "=" + c.NATS}
	if c.Copies != 0 {
		env = append(env, EnvReplicas+"="+strconv.Itoa(c.Copies))
	}
	for _, f := range c.keyFlags() {
		if *f.to != "" {
			env = append(env, f.env+"="+absolute(*f.to))
		}
	}
	return env
}

// absolute is path from anywhere: a model server's process works in a folder of its own.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// Validate complains about what no server is needed for.
func (c *Config) Validate() error {
	// NATS splits subjects and reads wildcards by these characters, and ZooKeeper paths.
	if c.BZID == "" || len(c.BZID) > 64 || events.Escape(c.BZID) != c.BZID || strings.ContainsAny(c.BZID, "/@") {
		return fmt.Errorf("%w: --bzid %q must be 1 to 64 letters, digits, - and _: it is a token of NATS subjects and of ZooKeeper paths", flags.ErrUsage, c.BZID)
	}
	if !slices.Contains([]int{0, 1, 3, 5}, c.Copies) {
		return fmt.Errorf("%w: --log-replicas (or %s) must be 1, 3 or 5, of which more than half must be up; 0 leaves streams as they are", flags.ErrUsage, EnvReplicas)
	}
	if c.NATS == "" {
		if c.Copies > 1 {
			return fmt.Errorf("%w: --log-replicas %d needs as many NATS servers, and the embedded one is alone: name a cluster with --nats", flags.ErrUsage, c.Copies)
		}
		return nil // embedded
	}
	for _, server := range flags.List(c.NATS) {
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return fmt.Errorf("%w: --nats %q is no list of nats://host:port, tls://, ws:// or wss:// URLs", flags.ErrUsage, Redacted(c.NATS))
		}
	}
	return nil
}

// Redacted is a NATS URL without what a person must not see.
func Redacted(s string) string {
	var out []string
	for _, server := range flags.List(s) {
		if at := strings.LastIndexByte(server, '@'); at >= 0 {
			scheme, _, _ := strings.Cut(server[:at], "://")
			server = scheme + "://…" + server[at:]
		}
		out = append(out, server)
	}
	return strings.Join(out, ",")
}

// Logger writes to standard error, or to To, from --log-level on.
func (c *Config) Logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("%w: --log-level %q is none of debug, info, warn, error", flags.ErrUsage, c.Level)
	}
	var to io.Writer = os.Stderr
	if c.To != nil {
		to = c.To
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level})), nil
}

// Dial connects as name, and gives up with a sentence after ten seconds.
func (c *Config) Dial(ctx context.Context, name string) (bus.Bus, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b, err := jetstream.Connect(ctx, jetstream.Config{URL: c.NATS, Name: name, BZID: c.BZID, Keys: c.Keys, CredsFile: c.Creds, Askers: c.Askers, Replicas: c.Copies, Look: c.Look, Log: c.Log, Health: c.Health})
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s (is it running? --nats names another): %w", Redacted(c.NATS), err)
	}
	if c.Bare {
		return b, nil
	}
	dir := c.Archive
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
func (c *Config) remembered(ctx context.Context, b *jetstream.Bus) string {
	t := b.Log().(bus.Trimmer)
	cut, err := t.Cut(ctx)
	if err != nil || cut.Archive == "" {
		return ""
	}
	if err := holds(ctx, cut, b.Log()); err != nil {
		if c.Log != nil {
			c.Log.Warn("the archive of the trimmed log is not here: whatever needs its beginning fails until --archive names it", "folder", cut.Archive, "err", err)
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

// Survey is how the server and the streams of a bus stand that Dial has returned.
func Survey(ctx context.Context, b bus.Bus) (jetstream.Survey, error) {
	if a, ok := b.(archivedBus); ok {
		b = a.Bus
	}
	return b.(*jetstream.Bus).Survey(ctx)
}

// EnvSynced is [SyncedAlways] where the NATS server is known to sync each write.
const (
	EnvSynced    = "MONOLITH_NATS_SYNC"
	SyncedAlways = "always"
)

// Unsynced is the warning about a server that is not our own: no client can see what its
// sync_interval is. "" where somebody has said that it is set.
func Unsynced(url string) string {
	if flags.Env(EnvSynced, "") == SyncedAlways {
		return ""
	}
	return fmt.Sprintf("the NATS server at %s must be set to `jetstream { sync_interval: always }`, which cannot be seen from here: without it a power cut loses facts that were acked. %s=%s says that it is set", Redacted(url), EnvSynced, SyncedAlways)
}

// While runs f, which is to return when its context ends, until the bus answers no
// more: the error says why then.
func While(ctx context.Context, b bus.Bus, f func(context.Context) error) error {
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
