package replicaregistry

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
)

// ZKMirror is the real ensemble that the tree is mirrored into.
type ZKMirror struct {
	// Servers of the ensemble, host:port; none: no mirror.
	Servers []string
	// Bridge makes facts of what foreign clients write there. Default false: their
	// writes are undone.
	Bridge bool
	// Chroot is the path there below which everything lies. Default: none.
	Chroot string
	// Roots are the subtrees that are mirrored. Default /{bzid} and /monolith.
	Roots []string
	// AuthFile holds user:password, to be shown by the digest scheme. Default: none.
	AuthFile string
	// TLS are the certificate that is shown to the ensemble, its key, and the authorities of
	// its servers, whose certificates must name the hosts of Servers. Default: in the clear.
	TLS mtls.Files
	// Session is for how long ephemerals stay there when no registry mirrors any more.
	// Default 20s.
	Session time.Duration
	// Resync is how often everything is compared. Changes there are noticed at once, but
	// for access lists, of which an ensemble does not tell. Default 5m.
	Resync time.Duration
}

func (c *ZKMirror) register(fs *pflag.FlagSet) {
	if c.Session == 0 {
		c.Session = 20 * time.Second
	}
	if c.Resync == 0 {
		c.Resync = 5 * time.Minute
	}
	fs.StringSliceVar(&c.Servers, "zk-mirror", c.Servers, "`host:port,...` of a real ZooKeeper ensemble that the tree is mirrored into (default: none)")
	fs.BoolVar(&c.Bridge, "zk-bridge", c.Bridge, "make facts of what other clients write in that ensemble; without it their writes are undone")
	fs.StringVar(&c.Chroot, "zk-mirror-chroot", c.Chroot, "`path` in the ensemble below which everything lies (default: none)")
	fs.StringSliceVar(&c.Roots, "zk-mirror-roots", c.Roots, "`paths` of the subtrees that are mirrored (default: /{bzid} and /monolith)")
	fs.StringVar(&c.AuthFile, "zk-auth-file", c.AuthFile, "`file` with user:password, shown to the ensemble by the digest scheme (default: none)")
	c.TLS.Register(fs, "zk-mirror-tls", "the connections to that ensemble, whose servers show certificates of their names in --zk-mirror (default: in the clear)")
	fs.DurationVar(&c.Resync, "zk-mirror-resync", c.Resync, "how often tree and ensemble are compared as a whole; it finds access lists that were set there")
	fs.DurationVar(&c.Session, "zk-mirror-session", c.Session, "how long ephemerals stay in the ensemble when no registry mirrors any more")
}

// validate reports every setting that cannot work.
func (c *ZKMirror) validate(listen string) (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, addr := range c.Servers {
		_, _, err := net.SplitHostPort(addr)
		check(err == nil, "--zk-mirror %q: give host:port,host:port: %w", addr, err)
	}
	check(len(c.Servers) == 0 || listen != "", "--zk-mirror needs --zk-listen: whoever mirrors also writes")
	check(!c.Bridge || len(c.Servers) > 0, "--zk-bridge needs --zk-mirror: name the ensemble")
	for flag, path := range map[string]string{"zk-mirror-chroot": c.Chroot} {
		check(path == "" || validRoot(path), "--%s %q: give an absolute path such as /monolith-go", flag, path)
	}
	for i, root := range c.Roots {
		check(validRoot(root) && !strings.HasPrefix(root, "/zookeeper") && root[1] != '@', "--zk-mirror-roots %q: give absolute paths, none of /zookeeper and none that begins with @", root)
		for _, other := range c.Roots[i+1:] {
			check(!strings.HasPrefix(other+"/", root+"/") && !strings.HasPrefix(root+"/", other+"/"), "--zk-mirror-roots: %s and %s overlap", root, other)
		}
	}
	check(c.Session == 0 || c.Session >= time.Second && c.Session <= 10*time.Minute, "--zk-mirror-session %v: give 1s to 10m", c.Session)
	check(c.Resync == 0 || c.Resync >= time.Second && c.Resync <= 24*time.Hour, "--zk-mirror-resync %v: give 1s to 24h", c.Resync)
	check(c.TLS == (mtls.Files{}) || len(c.Servers) > 0, "--zk-mirror-tls-cert needs --zk-mirror: name the ensemble's secure ports")
	return errs
}

func validRoot(path string) bool {
	return len(path) > 1 && path[0] == '/' && !slices.Contains(strings.Split(path[1:], "/"), "")
}

// tls reads the certificates; nil: none.
func (c *ZKMirror) tls() (*tls.Config, error) {
	t, err := c.TLS.Load()
	if err != nil {
		return nil, fmt.Errorf("--zk-mirror-tls-cert, -key and -ca: %w", err)
	}
	if t != nil {
		t.MinVersion = tls.VersionTLS12 // Apache's server offers no other by default
	}
	return t, nil
}

// auth reads the secret.
func (c *ZKMirror) auth() ([]ensemble.Auth, error) {
	if c.AuthFile == "" {
		return nil, nil
	}
	secret, err := os.ReadFile(c.AuthFile)
	if err != nil {
		return nil, fmt.Errorf("--zk-auth-file: %w", err)
	}
	secret = bytes.TrimSpace(secret)
	if user, _, ok := bytes.Cut(secret, []byte(":")); !ok || len(user) == 0 || bytes.ContainsAny(secret, "\r\n") {
		return nil, fmt.Errorf("--zk-auth-file %s: it must hold one line, user:password", c.AuthFile)
	}
	return []ensemble.Auth{{Scheme: "digest", Secret: secret}}, nil
}
