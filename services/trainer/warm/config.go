// Package warm begins a training job with what another one has learnt: it finds a checkpoint in that
// job's folder, says what of it the declared model cannot take, and writes it as a checkpoint of the new
// job, from which its shards restore.
//
//	Config.Find ──► Parent ── Fits(spec) ──► Write ──► model.ckpt-1 of the new job, with facts that name the parent
//
// A folder is read by itself, without the log of its job, which may run elsewhere or be gone: what all
// shards of a cut have written whole, at the same offsets, is one.
package warm

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/vfs"
)

// Config says from where a new job begins.
type Config struct {
	// Dir is the other job's folder: where its model.ckpt-<id> lie, or one below which they lie as
	// training/<job>, as train, demo and up make it. Default: none, the model is untrained.
	Dir string
	// Checkpoint is the number of one, or its folder's name. Without Dir it is the job's own, to which the job returns
	// once. Default: the newest that is whole.
	Checkpoint string
	// Optimizer says that the optimizers go on from their slots and their global step. Default true, by
	// Register.
	Optimizer bool
	// Offsets says that records are learnt on from where the other job stood: that both learn the same
	// ones is the caller's word. Default: all of them are learnt.
	Offsets bool
	// Timeout is how long a new job may take to begin with the checkpoint, until its trainers end with an
	// error. Default 0: as long as it takes.
	Timeout time.Duration
}

// Register binds the flags.
func (c *Config) Register(fs *pflag.FlagSet) {
	fs.StringVar(&c.Dir, "restore-dir", c.Dir, "`folder` of another job, from a checkpoint of which a new job begins: its own, or that of its system")
	fs.StringVar(&c.Checkpoint, "restore-ckpt", c.Checkpoint, "`checkpoint` in it, as 12 or model.ckpt-12; empty: the newest that is whole. Without --restore-dir one of the job's own, to which it returns, once")
	fs.BoolVar(&c.Optimizer, "restore-optimizer", true, "begin with its optimizers' slots and global step, too")
	fs.BoolVar(&c.Offsets, "restore-offsets", false, "learn on from its offsets: the records are those that it has learnt from")
	fs.DurationVar(&c.Timeout, "restore-timeout", c.Timeout, "how long a new job may take to begin with the checkpoint that it restores, until it fails; 0: as long as it takes")
}

// ErrTimeout ends a trainer whose job did not begin in time with the checkpoint that it was to begin with.
var ErrTimeout = errors.New("the job did not begin with the checkpoint that it restores")

// Late is told once the job should have begun, if there is a bound to that; stop is to be called.
func (c *Config) Late() (late <-chan time.Time, stop func()) {
	if c.Timeout == 0 || !c.Given() {
		return nil, func() {}
	}
	t := time.NewTimer(c.Timeout)
	return t.C, func() { t.Stop() }
}

// TooLate is the error of a job that has not begun by then.
func (c *Config) TooLate(job string) error {
	return fmt.Errorf("%w within --restore-timeout %v: %s of job %s; see the log of its chief", ErrTimeout, c.Timeout, c.Dir, job)
}

// Given says that a job is named.
func (c *Config) Given() bool { return c.Dir != "" }

// Validate complains about what no folder is looked at for.
func (c *Config) Validate() error {
	if c.Timeout < 0 {
		return fmt.Errorf("restore-timeout %v is negative", c.Timeout)
	}
	if !c.Given() {
		if c.Offsets {
			return fmt.Errorf("restore-offsets is of another job: name its folder with restore-dir")
		}
		_, err := c.id()
		return err
	}
	if vfs.Remote(c.Dir) {
		return fmt.Errorf("restore-dir %s: a job begins from a folder on a disk here: copy the checkpoint's folder with hadoop fs -get, or make one here with monolith checkpoint import --from", c.Dir)
	}
	_, err := c.id()
	return err
}

// Args are the flags that hand the same to a role.
func (c *Config) Args() []string {
	switch {
	case !c.Given() && c.Checkpoint == "":
		return nil
	case !c.Given():
		return []string{"--restore-ckpt", c.Checkpoint}
	}
	args := []string{"--restore-dir", c.Dir, "--restore-ckpt", c.Checkpoint,
		"--restore-optimizer=" + strconv.FormatBool(c.Optimizer), "--restore-offsets=" + strconv.FormatBool(c.Offsets)}
	if c.Timeout > 0 {
		args = append(args, "--restore-timeout", c.Timeout.String())
	}
	return args
}

// id is the checkpoint that is meant, 0 for the newest.
func (c *Config) id() (int64, error) {
	if c.Checkpoint == "" {
		return 0, nil
	}
	id, err := checkpoint.Parse(c.Checkpoint)
	if err != nil {
		return 0, fmt.Errorf("restore-ckpt %w", err)
	}
	return id, nil
}
