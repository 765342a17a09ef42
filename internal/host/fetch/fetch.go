// Package fetch is monolith checkpoint fetch.
package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/parts"
)

// Config says which checkpoint, whose parts lie on several machines, is brought to this one.
type Config struct {
	conn       connect.Config
	Job        string
	Checkpoint int64 // 0: the newest
	All        bool  // that the job has, instead
	To         string
	Keys       parts.Keys
	AsJSON     bool
}

// Register binds the command's flags.
func (c *Config) Register(fs *pflag.FlagSet) {
	c.conn.Register(fs)
	fs.StringVar(&c.Job, "job", "", "training `job`; empty: the only one that the log knows")
	fs.Int64Var(&c.Checkpoint, "checkpoint", 0, "`id` of the checkpoint; 0: the newest")
	fs.BoolVar(&c.All, "all", false, "all checkpoints that the job has, as verify reads them")
	fs.StringVar(&c.To, "to", "", "`folder` that gets model.ckpt-<id> and exported_models")
	c.Keys.Register(fs)
	fs.BoolVar(&c.AsJSON, "json", false, "print one JSON object")
}

// Validate complains about what no log is needed for.
func (c *Config) Validate() error {
	if c.To == "" {
		return fmt.Errorf("%w: --to must name the folder that gets the checkpoint", flags.ErrUsage)
	}
	if c.Checkpoint < 0 {
		return fmt.Errorf("%w: --checkpoint %d must be the id of a checkpoint, or 0 for the newest", flags.ErrUsage, c.Checkpoint)
	}
	if c.All && c.Checkpoint != 0 {
		return fmt.Errorf("%w: --all and --checkpoint both say what is fetched: take one away", flags.ErrUsage)
	}
	return c.conn.Validate()
}

// Fetched is what lies in the folder now.
type Fetched struct {
	Job         string  `json:"job"`
	Dir         string  `json:"dir"`
	Checkpoints []int64 `json:"checkpoints"`
	Exports     []int64 `json:"exports"` // that were made with them
}

// Run brings it.
func (c *Config) Run(ctx context.Context, stdout io.Writer) (err error) {
	b, err := c.conn.Dial(ctx, "monolith checkpoint fetch")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	l, err := follow.Replay(ctx, b.Log(), registry.Lineage.Only(c.conn.BZID), follow.End)
	if err != nil {
		return err
	}
	name, wanted, err := c.choose(l)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(c.To)
	if err != nil {
		return err
	}
	log, err := c.conn.Logger()
	if err != nil {
		return err
	}
	if err := parts.Bring(ctx, l, dir, c.Keys, log, wanted...); err != nil {
		return err
	}
	out := &Fetched{Job: name, Dir: dir, Exports: []int64{}}
	for _, w := range wanted {
		if out.Checkpoints = append(out.Checkpoints, w.Checkpoint.GetId()); w.Exported != nil {
			out.Exports = append(out.Exports, w.Exported.GetVersion())
		}
	}
	if c.AsJSON {
		return json.NewEncoder(stdout).Encode(out)
	}
	_, err = fmt.Fprintf(stdout, "job %s: checkpoints %v and exports %v in %s\n", out.Job, out.Checkpoints, out.Exports, out.Dir)
	return err
}

// choose finds what is meant.
func (c *Config) choose(l lineage.State) (name string, wanted []parts.Wanted, err error) {
	if name = c.Job; name == "" {
		if len(l.Jobs) != 1 {
			return "", nil, fmt.Errorf("the log knows the jobs %q in namespace %s: name one with --job, or another namespace with --bzid", slices.Sorted(maps.Keys(l.Jobs)), c.conn.BZID)
		}
		for name = range l.Jobs {
		}
	}
	j := l.Jobs[name]
	all, ids := j.Restorable(), []int64{}
	if c.All {
		all = append(all, j.Left()...)
	}
	for _, x := range all {
		if ids = append(ids, x.GetId()); c.Checkpoint != 0 && x.GetId() != c.Checkpoint || c.Checkpoint == 0 && !c.All && len(wanted) > 0 {
			continue
		}
		w := parts.Wanted{Model: j.Started.V.GetModelName(), Checkpoint: x}
		for _, e := range j.Exports {
			if e.V.GetVersion() == x.GetId() {
				w.Exported = e.V
			}
		}
		wanted = append(wanted, w)
	}
	switch {
	case len(ids) == 0:
		return "", nil, fmt.Errorf("job %q has no checkpoint: the log knows the jobs %q in namespace %s", name, slices.Sorted(maps.Keys(l.Jobs)), c.conn.BZID)
	case len(wanted) == 0:
		return "", nil, fmt.Errorf("checkpoint %d of job %s is not on disk: name one of %v", c.Checkpoint, name, ids)
	}
	return name, wanted, nil
}

// Command is the command.
func Command() *cobra.Command {
	var c Config
	cmd := &cobra.Command{
		Use:   "fetch",
		Short: "Bring a checkpoint, and its export, from the machines whose disks have the parts",
		Long: "Asks the hosts of which the log says that they hand out the job's folder (model-sync --transfer-listen\n" +
			"--exports), verifies every byte against what the job has said, and writes to --to what the job's folder\n" +
			"would hold on one disk. verify and export read it with --parts, a new job begins with it by\n" +
			"--restore-dir. Run again, it goes on where it was.",
		Example: "  monolith checkpoint fetch --to /srv/whole --tls-cert me.pem --tls-key me.key --tls-ca ca.pem\n" +
			"  monolith trainer --job next --model movies --restore-dir /srv/whole --dir /srv/training/next",
		Args: flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			return c.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	c.Register(cmd.Flags())
	return cmd
}
