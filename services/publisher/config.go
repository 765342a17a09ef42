package publisher

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/input"
)

// Config of the publisher.
type Config struct {
	// SnapshotDir keeps snapshots of the views; default: none.
	SnapshotDir string
	// Debounce is how long the fleet must stay still before new containers are planned
	// for; a lost one is replaced at once. Default 300ms.
	Debounce time.Duration
	// Recheck is how often plans are looked at though no event came: for newer versions
	// of exports that are followed, and folders that could not be read. Default 5s.
	Recheck time.Duration
	// LeaseTTL is how long a dead publisher goes on leading, in whole seconds: so long
	// plans stay as they are before another one goes on. Default 2s.
	LeaseTTL time.Duration
	// Brokers are Kafka addresses, host:port, where canaries are measured. Default: none, and
	// there are no canaries.
	Brokers []string
	// Access is with what rights these are spoken to. Default: in the clear, by nobody.
	Access kafka.Credentials
	// RatingsTopic and PredictionsTopic hold what is rated and what was answered. Default ratings
	// and predictions, and <bzid>.ratings and <bzid>.predictions outside of the namespace demo.
	RatingsTopic, PredictionsTopic string
	// Format is how ratings are written, see [input.ParseFormat]. Default json.
	Format string

	registered bool // by Register: what is zero now is meant
}

// Register binds the flags, after it has put defaults where nothing is set.
func (c *Config) Register(fs *pflag.FlagSet) {
	*c = c.withDefaults()
	c.registered = true
	fs.StringVar(&c.SnapshotDir, "snapshot-dir", c.SnapshotDir, "folder for snapshots of the views (default: none)")
	fs.DurationVar(&c.Debounce, "debounce", c.Debounce, "how long the fleet must stay still before new containers are planned for")
	fs.DurationVar(&c.Recheck, "recheck", c.Recheck, "how often exports are looked at for newer versions")
	fs.StringSliceVar(&c.Brokers, "kafka", c.Brokers, "Kafka `host:port` where canaries are measured, repeatable; none: there are no canaries")
	c.Access.Register(fs)
	fs.StringVar(&c.RatingsTopic, "ratings-topic", c.RatingsTopic, "training `topic`; empty: ratings, and <bzid>.ratings outside of the namespace demo")
	fs.StringVar(&c.PredictionsTopic, "predictions-topic", c.PredictionsTopic, "`topic` of impressions; empty: predictions, and <bzid>.predictions outside of the namespace demo")
	fs.StringVar(&c.Format, "format", c.Format, input.FormatUsage)
	fs.DurationVar(&c.LeaseTTL, "lease-ttl", c.LeaseTTL, "how long a dead publisher goes on leading, in whole seconds")
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	var errs []error
	if c.Debounce < 0 || c.Debounce > time.Minute {
		errs = append(errs, fmt.Errorf("debounce is %v: give 0 to 1m", c.Debounce))
	}
	if c.Recheck < 0 || c.Recheck > time.Hour {
		errs = append(errs, fmt.Errorf("recheck is %v: give 0 (5s) to 1h", c.Recheck))
	}
	if c.LeaseTTL < 0 || c.LeaseTTL > time.Minute || c.LeaseTTL%time.Second != 0 {
		errs = append(errs, fmt.Errorf("lease-ttl is %v: give whole seconds, 0 (2s) to 1m", c.LeaseTTL))
	}
	for _, topic := range []string{c.RatingsTopic, c.PredictionsTopic} {
		if topic != "" {
			errs = append(errs, kafka.ValidTopic(topic))
		}
	}
	if c.Format != "" {
		_, err := input.ParseFormat(c.Format)
		errs = append(errs, err)
	}
	_, err := c.Access.Access()
	return errors.Join(append(errs, err)...)
}

func (c Config) withDefaults() Config {
	c.Recheck = cmp.Or(c.Recheck, 5*time.Second)
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 2*time.Second)
	c.Format = cmp.Or(c.Format, input.JSON.String())
	if !c.registered {
		c.Debounce = cmp.Or(c.Debounce, 300*time.Millisecond)
	}
	return c
}
