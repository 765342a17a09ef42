package publisher

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Config of the publisher.
type Config struct {
	// SnapshotDir keeps snapshots of the views; default: none.
	SnapshotDir string
	// Debounce is how long the fleet must stay still before new containers are planned
	// for; a lost one is replaced at once. Default 300ms.
	Debounce time.Duration
}

// Register binds the flags, after it has put defaults where nothing is set.
func (c *Config) Register(fs *pflag.FlagSet) {
	*c = c.withDefaults()
	fs.StringVar(&c.SnapshotDir, "snapshot-dir", c.SnapshotDir, "folder for snapshots of the views (default: none)")
	fs.DurationVar(&c.Debounce, "debounce", c.Debounce, "how long the fleet must stay still before new containers are planned for")
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	var errs []error
	if c.Debounce < 0 || c.Debounce > time.Minute {
		errs = append(errs, fmt.Errorf("debounce is %v: give 0 (300ms) to 1m", c.Debounce))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Debounce == 0 {
		c.Debounce = 300 * time.Millisecond
	}
	return c
}
