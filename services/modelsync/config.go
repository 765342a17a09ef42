package modelsync

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
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
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Host == "" {
		c.Host, _ = os.Hostname() // without one Validate complains
	}
	c.Retry = cmp.Or(c.Retry, time.Second)
	c.Flush = cmp.Or(c.Flush, time.Second)
	if !c.registered {
		c.Grace = cmp.Or(c.Grace, 10*time.Minute)
	}
	return c
}
