package replicaregistry

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/projections/zookeeper/server"
)

// ZKPort is how the ZooKeeper port is guarded and how much it takes. Zero limits are the
// server's defaults.
type ZKPort struct {
	// TLS are the certificate of the port, its key, and the authorities of its clients.
	// Beyond loopback it is required, unless Insecure.
	TLS mtls.Files
	// ClientAuth is ZooKeeper's ssl.clientAuth: need, every client shows a certificate;
	// want, who shows one shows one of the authorities'; none. Default need.
	ClientAuth string
	// Insecure lets the port be reached from other machines in the clear. Default false.
	Insecure bool

	MaxConns       int // connections at a time; default 1000
	MaxConnsPerIP  int // of one address; default MaxConns
	MaxSessions    int // connected or not; default four for each connection
	MaxOutstanding int // requests of one connection behind a write of it; default 1000
	// MaxWaitingBytes bounds the requests of all connections that wait for the log;
	// connections that are over it are not read. Default 64 MiB.
	MaxWaitingBytes int
	// SuperDigestFile holds the digest of one who may read, change and remove every node,
	// user:base64(sha1(user:password)), as ZooKeeper's superDigest. Default: nobody may.
	SuperDigestFile string
	// Words are the four-letter words that are answered; "*" is all of them. Default:
	// those that change nothing and cost little.
	Words []string
	// MinSessionTimeout and MaxSessionTimeout are the bounds of what clients get when
	// they ask for a session time-out; default 4s and 40s.
	MinSessionTimeout time.Duration
	MaxSessionTimeout time.Duration

	lease, sweep time.Duration // of the writer, 0: its defaults
}

func (c *ZKPort) register(fs *pflag.FlagSet) {
	if c.ClientAuth == "" {
		c.ClientAuth = "need"
	}
	d := server.Config{
		MaxConns: c.MaxConns, MaxConnsPerIP: c.MaxConnsPerIP, MaxSessions: c.MaxSessions, MaxOutstanding: c.MaxOutstanding,
		MaxWaitingBytes: c.MaxWaitingBytes, Words: c.Words, MinSessionTimeout: c.MinSessionTimeout, MaxSessionTimeout: c.MaxSessionTimeout,
	}.WithDefaults()
	c.TLS.Register(fs, "zk-tls", "the ZooKeeper port, which beyond this machine needs one")
	fs.StringVar(&c.ClientAuth, "zk-client-auth", c.ClientAuth, "certificates of ZooKeeper clients: need, want or none, as ZooKeeper's ssl.clientAuth")
	fs.BoolVar(&c.Insecure, "insecure-zk", c.Insecure, "let other machines reach the ZooKeeper port, though without --zk-tls-cert it is neither encrypted nor authenticated")
	fs.IntVar(&c.MaxConns, "zk-max-connections", d.MaxConns, "ZooKeeper connections at a time; further ones are closed at once")
	fs.IntVar(&c.MaxConnsPerIP, "zk-max-connections-per-ip", c.MaxConnsPerIP, "ZooKeeper connections of one address, as maxClientCnxns; 0: as many as of all")
	fs.IntVar(&c.MaxSessions, "zk-max-sessions", c.MaxSessions, "ZooKeeper sessions at a time, connected or not; 0: four for each connection")
	fs.IntVar(&c.MaxOutstanding, "zk-max-outstanding", d.MaxOutstanding, "requests of one ZooKeeper connection that wait behind a write of it, before no more are read")
	fs.IntVar(&c.MaxWaitingBytes, "zk-max-waiting-bytes", d.MaxWaitingBytes, "bytes of all ZooKeeper requests that wait for the log, before no more are read, as largeRequestMaxBytes")
	fs.StringVar(&c.SuperDigestFile, "zk-super-digest-file", c.SuperDigestFile, "file with the digest of the one who may do everything on the ZooKeeper port, user:base64(sha1(user:password)), as superDigest (default: nobody)")
	fs.StringSliceVar(&c.Words, "zk-words", d.Words, "four-letter words that the ZooKeeper port answers, as 4lw.commands.whitelist; * is all")
	fs.DurationVar(&c.MinSessionTimeout, "zk-min-session-timeout", d.MinSessionTimeout, "shortest session time-out that a ZooKeeper client gets")
	fs.DurationVar(&c.MaxSessionTimeout, "zk-max-session-timeout", d.MaxSessionTimeout, "longest session time-out that a ZooKeeper client gets")
}

// validate reports every setting that cannot work.
func (c *ZKPort) validate() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(slices.Contains([]string{"", "need", "want", "none"}, c.ClientAuth), "--zk-client-auth %q: give need, want or none", c.ClientAuth)
	check(!c.Insecure || c.TLS == (mtls.Files{}), "--insecure-zk and --zk-tls-cert contradict each other: give one of them")
	for _, limit := range []struct {
		flag string
		n    int
	}{
		{"zk-max-connections", c.MaxConns}, {"zk-max-connections-per-ip", c.MaxConnsPerIP},
		{"zk-max-sessions", c.MaxSessions}, {"zk-max-outstanding", c.MaxOutstanding},
	} {
		check(limit.n >= 0 && limit.n <= 1<<20, "--%s %d: give 1 to %d, or 0 for the default", limit.flag, limit.n, 1<<20)
	}
	check(c.MaxWaitingBytes == 0 || c.MaxWaitingBytes >= 1<<20, "--zk-max-waiting-bytes %d: give at least %d, or 0 for the default", c.MaxWaitingBytes, 1<<20)
	known := server.Words()
	for _, w := range c.Words {
		check(w == "*" || slices.Contains(known, w), "--zk-words %s: give some of %s, or *", w, strings.Join(known, ", "))
	}
	for flag, d := range map[string]time.Duration{"zk-min-session-timeout": c.MinSessionTimeout, "zk-max-session-timeout": c.MaxSessionTimeout} {
		check(d == 0 || d >= 10*time.Millisecond && d <= 24*time.Hour, "--%s %v: give 10ms to 24h", flag, d)
	}
	d := server.Config{MinSessionTimeout: c.MinSessionTimeout, MaxSessionTimeout: c.MaxSessionTimeout}.WithDefaults()
	check(d.MinSessionTimeout <= d.MaxSessionTimeout, "--zk-min-session-timeout %v is above --zk-max-session-timeout %v", d.MinSessionTimeout, d.MaxSessionTimeout)
	return errs
}

// server is the same for the server that listens there, with the certificates that all ports
// share unless it has its own.
func (c ZKPort) server(listen string, shared mtls.Files) (server.Config, error) {
	cfg := server.Config{
		Listen: listen, Plaintext: c.Insecure,
		MaxConns: c.MaxConns, MaxConnsPerIP: c.MaxConnsPerIP, MaxSessions: c.MaxSessions, MaxOutstanding: c.MaxOutstanding,
		MaxWaitingBytes: c.MaxWaitingBytes, Words: c.Words, MinSessionTimeout: c.MinSessionTimeout, MaxSessionTimeout: c.MaxSessionTimeout,
	}
	if c.SuperDigestFile != "" {
		raw, err := os.ReadFile(c.SuperDigestFile)
		if err != nil {
			return cfg, fmt.Errorf("zookeeper port: --zk-super-digest-file: %w", err)
		}
		cfg.SuperDigest = strings.TrimSpace(string(raw))
		if user, hash, _ := strings.Cut(cfg.SuperDigest, ":"); user == "" || !isSHA1(hash) {
			return cfg, fmt.Errorf("zookeeper port: --zk-super-digest-file %s: it must hold user:base64(sha1(user:password)) and nothing else", c.SuperDigestFile)
		}
	}
	var err error
	cfg.TLS, err = c.keys(shared)
	return cfg, err
}

// keys are the port's certificates, or those that all ports share; nil: plain text.
func (c ZKPort) keys(shared mtls.Files) (*tls.Config, error) {
	files, flag := c.TLS, "--zk-tls"
	if files == (mtls.Files{}) && !c.Insecure {
		files, flag = shared, "--"+mtls.Shared
	}
	auth := map[string]tls.ClientAuthType{"want": tls.VerifyClientCertIfGiven, "none": tls.NoClientCert}
	ask, other := auth[c.ClientAuth]
	if !other {
		ask = tls.RequireAndVerifyClientCert
	}
	t, err := files.Server(ask)
	if err == nil && t != nil && files.CA == "" && ask != tls.NoClientCert {
		err = errors.New("clients are asked for certificates, and no authorities are named: name them, or give --zk-client-auth none")
	}
	if err != nil {
		return nil, fmt.Errorf("zookeeper port: %s-cert, -key and -ca: %w", flag, err)
	}
	return t, nil
}

func isSHA1(hash string) bool {
	sum, err := base64.StdEncoding.DecodeString(hash)
	return err == nil && len(sum) == 20
}
