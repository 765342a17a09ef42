package machine

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// Config says how a machine is looked at.
type Config struct {
	// Every is how often; while a look fails the job pauses. Default 0: never. The flag's default is 30 s.
	Every time.Duration
	// Memory is the share of the memory that its control group allows from which on the machine counts as
	// out of memory, 0: never. The flag's default is 0.97.
	Memory float64
	// Command is run by a shell at each look, with MONOLITH_JOB and MONOLITH_SHARD in its environment: it
	// fails where it exits with another status than 0, or does not end within 10 s. Default: none.
	Command string

	registered bool // zeros are meant
}

// Register binds the flags, which have defaults of their own.
func (c *Config) Register(fs *pflag.FlagSet) {
	c.registered = true
	fs.DurationVar(&c.Every, "health-every", 30*time.Second, "how often a shard's machine is looked at; while a look fails the job pauses. 0: never")
	fs.Float64Var(&c.Memory, "health-memory", 0.97, "share of the control group's memory from which on the machine counts as out of memory; 0: never")
	fs.StringVar(&c.Command, "health-command", "", "shell `command` that fails while the machine is not well; it finds MONOLITH_JOB and MONOLITH_SHARD in its environment")
}

// Validate complains about figures that make no sense.
func (c *Config) Validate() error {
	var errs []error
	if c.Every != 0 && c.Every < time.Second {
		errs = append(errs, fmt.Errorf("health every %v: give 0 or at least 1s", c.Every))
	}
	if !(c.Memory >= 0 && c.Memory <= 1) {
		errs = append(errs, fmt.Errorf("health memory %v: give a share of 0 to 1", c.Memory))
	}
	return errors.Join(errs...)
}

// Args are the flags that hand the same to a shard; none where the shard's own defaults are meant.
func (c *Config) Args() []string {
	if !c.registered {
		return nil
	}
	return []string{"--health-every", c.Every.String(), "--health-memory", strconv.FormatFloat(c.Memory, 'g', -1, 64), "--health-command", c.Command}
}
