package portal

import (
	"github.com/spf13/pflag"
)

// Config of the portal.
type Config struct {
	// SnapshotDir keeps snapshots of the catalogue, so that a start folds only what is
	// newer. Default: none, the log is folded from its beginning.
	SnapshotDir string
}

// Register binds the flags.
func (c *Config) Register(fs *pflag.FlagSet) {
	fs.StringVar(&c.SnapshotDir, "snapshot-dir", c.SnapshotDir, "folder for snapshots of the catalogue (default: none)")
}

// Validate finds nothing to complain about.
func (c *Config) Validate() error { return nil }
