package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/compat/modeldir"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/vfs"
)

// maxServers is far more parameter servers than anybody runs.
const maxServers = 4096

// names are the flags that say what is called otherwise in a model_dir.
type names struct{ tables, variables []string }

func (n *names) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&n.tables, "table", nil, "`OURS=THEIRS`, what a table is called there; OURS= alone: it is not there, and begins empty")
	fs.StringArrayVar(&n.variables, "variable", nil, "`OURS=THEIRS`, what a dense variable is called there; OURS= alone: it is not there, and begins untrained")
}

// parse splits the flags; each of ours may be named once.
func (n *names) parse() (modeldir.Names, error) {
	out := modeldir.Names{Tables: map[string]string{}, Variables: map[string]string{}}
	for _, of := range []struct {
		flag  string
		given []string
		to    map[string]string
	}{{"table", n.tables, out.Tables}, {"variable", n.variables, out.Variables}} {
		for _, s := range of.given {
			ours, theirs, ok := strings.Cut(s, "=")
			if _, twice := of.to[ours]; !ok || ours == "" || twice {
				return out, fmt.Errorf("%w: --%s %q must be OURS=THEIRS, once for each", flags.ErrUsage, of.flag, s)
			}
			of.to[ours] = theirs
		}
	}
	return out, nil
}

// CheckpointExport writes a checkpoint as the original keeps them.
type CheckpointExport struct {
	Place
	To      string
	Servers int
	Layout  string
	AsJSON  bool
	names   names
}

// Register binds the command's flags.
func (c *CheckpointExport) Register(fs *pflag.FlagSet) {
	c.Place.Register(fs)
	fs.StringVar(&c.To, "to", "", "model_dir of the original: the `folder`, here or of HDFS, that gets the checkpoint")
	fs.IntVar(&c.Servers, "ps", 0, "parameter `servers` that are to read it; 0: as many as the job has shards")
	fs.StringVar(&c.Layout, "layout", string(modeldir.Multi), "files of tables: multi (all of a server in one set) or single (a set for each)")
	fs.BoolVar(&c.AsJSON, "json", false, "print one JSON object")
	c.names.register(fs)
}

// Validate complains about what no folder is needed for.
func (c *CheckpointExport) Validate() error {
	if c.To == "" {
		return fmt.Errorf("%w: --to must name the model_dir that gets the checkpoint", flags.ErrUsage)
	}
	if c.Servers < 0 || c.Servers > maxServers {
		return fmt.Errorf("%w: --ps %d must be 1 to %d, or 0 for as many as there are shards", flags.ErrUsage, c.Servers, maxServers)
	}
	if l := modeldir.Layout(c.Layout); l != modeldir.Multi && l != modeldir.Single {
		return fmt.Errorf("%w: --layout %q must be multi or single", flags.ErrUsage, c.Layout)
	}
	if _, err := c.names.parse(); err != nil {
		return err
	}
	return c.Place.Validate()
}

// Run writes the checkpoint.
func (c *CheckpointExport) Run(ctx context.Context, stdout io.Writer) (err error) {
	named, err := c.names.parse()
	if err != nil {
		return err
	}
	s, err := c.find(ctx)
	if err != nil {
		return err
	}
	src := modeldir.Source{Spec: s.spec, Shards: len(s.checkpoint.GetShards()), Step: s.checkpoint.Step(), Read: s.shard}
	to, err := stage(c.To)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	if err := to.fetch(ctx, modeldir.StateFiles...); err != nil {
		return err
	}
	w, err := modeldir.Write(ctx, src, modeldir.Writing{Dir: to.here, Servers: c.Servers, Layout: modeldir.Layout(c.Layout), Names: named, Now: time.Now()})
	if err != nil {
		return err
	}
	if err := to.carry(ctx, modeldir.Files(src.Step)...); err != nil {
		return err
	}
	if err := to.replace(ctx, modeldir.StateFiles...); err != nil {
		return err
	}
	w.Checkpoint = vfs.Join(to.to, vfs.Base(w.Checkpoint))
	return show(stdout, c.AsJSON, (*writtenReport)(w))
}

type writtenReport modeldir.Written

// Print says for people what was written.
func (r *writtenReport) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "checkpoint\t%s, for %d servers\n", r.Checkpoint, r.Servers)
	printTables(t, r.Tables)
	fmt.Fprintf(t, "variables\t%d\n", r.Variables)
	listed(t, "admission begins anew", r.Uncounted)
	return t.Flush()
}

func printTables(w io.Writer, tables []modeldir.Table) {
	for _, x := range tables {
		theirs := "there " + x.Theirs
		if x.Theirs == "" {
			theirs = "begins empty"
		}
		fmt.Fprintf(w, "table %s\t%d rows, %s\n", x.Name, x.Rows, theirs)
	}
}

// listed prints names, if there are any.
func listed(w io.Writer, what string, names []string) {
	if len(names) > 0 {
		fmt.Fprintf(w, "%s\t%s\n", what, strings.Join(names, ", "))
	}
}

// CheckpointImport makes a checkpoint of a job here from one of the original.
type CheckpointImport struct {
	Spec   string
	From   string
	Ckpt   string
	To     string
	Shards int
	Fresh  bool
	Sparse bool
	AsJSON bool
	names  names
}

// Register binds the command's flags.
func (c *CheckpointImport) Register(fs *pflag.FlagSet) {
	fs.StringVar(&c.Spec, "spec", "", "the model's spec, a YAML `file` (-: standard input)")
	fs.StringVar(&c.From, "from", "", "model_dir of the original: the `folder`, here or of HDFS, in which its checkpoints lie")
	fs.StringVar(&c.Ckpt, "ckpt", "", "`checkpoint` in it, as 300 or model.ckpt-300; empty: the newest")
	fs.StringVar(&c.To, "to", "", "`folder`, here or of HDFS, that gets the checkpoint, for train --restore-dir")
	fs.IntVar(&c.Shards, "shards", 0, "`shards` that it is cut into; 0: as many as servers wrote it")
	fs.BoolVar(&c.Fresh, "fresh-optimizers", false, "take rows that say nothing of their optimizers, which begin anew")
	fs.BoolVar(&c.Sparse, "sparse-only", false, "take tables without dense variables, which begin untrained")
	fs.BoolVar(&c.AsJSON, "json", false, "print one JSON object")
	c.names.register(fs)
}

// Validate complains about what no folder is needed for.
func (c *CheckpointImport) Validate() error {
	var errs []error
	for flag, value := range map[string]string{"spec": c.Spec, "from": c.From, "to": c.To} {
		if value == "" {
			errs = append(errs, fmt.Errorf("%w: --%s is missing", flags.ErrUsage, flag))
		}
	}
	if c.Shards < 0 || c.Shards > maxServers {
		errs = append(errs, fmt.Errorf("%w: --shards %d must be 1 to %d, or 0 for as many as servers wrote it", flags.ErrUsage, c.Shards, maxServers))
	}
	_, err := c.names.parse()
	return errors.Join(append(errs, err)...)
}

// Imported is what was made.
type Imported struct {
	*modeldir.Read
	Model string   `json:"model"`
	Dir   string   `json:"dir"` // the checkpoint here
	Parts []string `json:"parts"`
}

// Run reads the one checkpoint whole and writes the other, shard by shard: what begins from it takes it
// when all of its shards are there.
func (c *CheckpointImport) Run(ctx context.Context, stdin io.Reader, stdout io.Writer) (err error) {
	named, err := c.names.parse()
	if err != nil {
		return err
	}
	spec, err := specfile.Read(c.Spec, stdin)
	if err != nil {
		return err
	}
	read, err := modeldir.ReadCheckpoint(ctx, spec, modeldir.Reading{Dir: c.From, Ckpt: c.Ckpt, Names: named, Shards: c.Shards, Fresh: c.Fresh, Sparse: c.Sparse})
	if err != nil {
		return err
	}
	id := max(read.Step, 1)
	to, err := stage(c.To)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	name := checkpoint.Name(id)
	out := &Imported{Read: read, Model: spec.GetName(), Dir: vfs.Join(to.to, name)}
	for i, s := range read.Shards {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.Manifest.Job, s.Manifest.Checkpoint = spec.GetName(), id
		part := "ps_" + strconv.Itoa(i)
		if _, err := checkpoint.CreateShard(filepath.Join(to.here, name, part), s); err != nil {
			return err
		}
		if err := to.carry(ctx, filepath.Join(name, part)); err != nil {
			return err
		}
		out.Parts = append(out.Parts, part)
	}
	return show(stdout, c.AsJSON, out)
}

// Print says for people what was made.
func (x *Imported) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "read\t%s, step %d\n", x.Checkpoint, x.Step)
	printTables(t, x.Tables)
	fmt.Fprintf(t, "variables\t%d\n", x.Variables)
	listed(t, "untrained", x.Untrained)
	listed(t, "optimizers begin anew", x.Anew)
	listed(t, "admission begins anew", x.Uncounted)
	listed(t, "not taken", x.Left)
	fmt.Fprintf(t, "written\t%s: %v\n", x.Dir, x.Parts)
	return t.Flush()
}
