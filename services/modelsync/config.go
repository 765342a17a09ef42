package modelsync

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/mtls"
)

// Config of model-sync.
type Config struct {
	// Host names this machine in facts and in the keys of copies; the tfs-supervisors of
	// the machine go by the same name. Default: the host name.
	Host string
	// Dir is where copies live: <dir>/<model>/<origin>/<sub-model>/<version>, where origin
	// is a hash of the folder they were exported to. Required, absolute.
	Dir string
	// SnapshotDir keeps snapshots of the views; default: none.
	SnapshotDir string
	// Retry is the first wait after a copy failed; it doubles up to 30 times that.
	// Default 1s.
	Retry time.Duration
	// Grace is how long the newest copy of a sub-model stays that no plan wants on this
	// host any more: a server may be reading it, or it may be wanted again. Default 10m.
	Grace time.Duration
	// Flush is how often applied deltas become facts. Default 1s.
	Flush time.Duration

	// TransferListen is where other hosts fetch what lies here, host:port. Default: nowhere.
	TransferListen string
	// TransferAdvertise is what they connect to, host:port. Default: the address listened on.
	TransferAdvertise string
	// TransferTLS are the certificates that hosts show each other. Default: those of all ports.
	TransferTLS mtls.Files
	// InsecureTransfer has transfers in plain text, beyond this machine, too.
	InsecureTransfer bool
	// Exports are folders on this host whose exports and checkpoints others may fetch, absolute, at any depth
	// above them. Default: none, copies alone.
	Exports []string

	registered bool // by Register: what is zero now is meant
}

// Register binds the flags, after it has put defaults where nothing is set.
func (c *Config) Register(fs *pflag.FlagSet) {
	*c = c.withDefaults()
	c.registered = true
	fs.StringVar(&c.Host, "host", c.Host, "name of this machine in facts")
	fs.StringVar(&c.Dir, "dir", c.Dir, "folder of the copies")
	fs.StringVar(&c.SnapshotDir, "snapshot-dir", c.SnapshotDir, "folder for snapshots of the views (default: none)")
	fs.DurationVar(&c.Retry, "retry", c.Retry, "first wait after a failed copy")
	fs.DurationVar(&c.Grace, "grace", c.Grace, "how long the newest copy stays that is not wanted any more")
	fs.DurationVar(&c.Flush, "flush", c.Flush, "how often applied deltas become facts")
	fs.StringVar(&c.TransferListen, "transfer-listen", c.TransferListen, "listen `address` where other hosts fetch the copies and exports of this one (default: nowhere)")
	fs.StringVar(&c.TransferAdvertise, "transfer-advertise", c.TransferAdvertise, "`host:port` others connect to (default: the address listened on)")
	c.TransferTLS.RegisterPort(fs, "transfer-tls", "transfers, which both ends show")
	fs.BoolVar(&c.InsecureTransfer, "insecure-transfer", c.InsecureTransfer, "hand out and fetch models in plain text, beyond this machine, too: whoever reaches the port may read every model, and who answers in a host's place may send another one")
	fs.StringArrayVar(&c.Exports, "exports", c.Exports, "`folder` whose exports and checkpoints other hosts may fetch, such as the --dir of a job; may be repeated")
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	var errs []error
	if c.Host == "" || len(c.Host) > 100 || strings.ContainsAny(c.Host, "/\\") {
		errs = append(errs, fmt.Errorf("--host %q: give this machine's name, at most 100 bytes without slashes", c.Host))
	}
	if !filepath.IsAbs(c.Dir) {
		errs = append(errs, fmt.Errorf("--dir %q: give an absolute folder for the copies", c.Dir))
	}
	if c.Retry < 0 || c.Flush < 0 || c.Grace < 0 {
		errs = append(errs, errors.New("--retry, --flush and --grace must not be negative"))
	}
	errs = append(errs, c.validateTransfer())
	return errors.Join(errs...)
}

func (c *Config) validateTransfer() error {
	var errs []error
	for _, folder := range c.Exports {
		if !filepath.IsAbs(folder) || len(folder) > 4000 {
			errs = append(errs, fmt.Errorf("--exports %q: give an absolute folder", folder))
		}
	}
	if len(c.Exports) > 256 {
		errs = append(errs, fmt.Errorf("%d folders of --exports: 256 are taken, name one above them", len(c.Exports)))
	}
	if c.TransferListen == "" {
		if c.TransferAdvertise != "" || len(c.Exports) > 0 {
			errs = append(errs, errors.New("--transfer-advertise and --exports are for a host that hands something out: name its --transfer-listen"))
		}
		return errors.Join(errs...)
	}
	host, _, err := net.SplitHostPort(c.TransferListen)
	if err != nil {
		errs = append(errs, fmt.Errorf("--transfer-listen: %w", err))
	}
	if ip := net.ParseIP(host); c.TransferAdvertise == "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		errs = append(errs, fmt.Errorf("nobody can connect to %s: name a reachable address with --transfer-advertise", c.TransferListen))
	}
	if c.TransferAdvertise != "" {
		if host, port, err := net.SplitHostPort(c.TransferAdvertise); err != nil || host == "" || port == "" {
			errs = append(errs, fmt.Errorf("--transfer-advertise %q: give host:port", c.TransferAdvertise))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Host == "" {
		c.Host, _ = os.Hostname() // without one Validate complains
	}
	c.Retry = cmp.Or(c.Retry, time.Second)
	c.Flush = cmp.Or(c.Flush, time.Second)
	for i, folder := range c.Exports {
		if i == 0 {
			c.Exports = slices.Clone(c.Exports)
		}
		c.Exports[i] = filepath.Clean(folder)
	}
	if !c.registered {
		c.Grace = cmp.Or(c.Grace, 10*time.Minute)
	}
	return c
}
