package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// Export writes a checkpoint as model servers load it.
type Export struct {
	Place
	To     string
	AsJSON bool
}

// Register binds the command's flags.
func (c *Export) Register(fs *pflag.FlagSet) {
	c.Place.Register(fs)
	fs.StringVar(&c.To, "to", "", "`folder`, here or of HDFS, that gets entry and ps_0, ps_1, …, with the version in each")
	fs.BoolVar(&c.AsJSON, "json", false, "print one JSON object")
}

// Validate complains about what no folder is needed for.
func (c *Export) Validate() error {
	if c.To == "" {
		return fmt.Errorf("%w: --to must name the folder that gets the export; train has left one in exported_models", flags.ErrUsage)
	}
	return c.Place.Validate()
}

// Exported is what was written.
type Exported struct {
	Model     string   `json:"model"`
	Version   int64    `json:"version"` // the checkpoint's id
	Dir       string   `json:"dir"`
	SubModels []string `json:"sub_models"`
	Rows      int      `json:"rows"`
}

// Run writes the export, the shards first and the entry last: what looks for a version finds it
// whole. A version that is there is an error.
func (c *Export) Run(ctx context.Context, stdout io.Writer) (err error) {
	s, err := c.find(ctx)
	if err != nil {
		return err
	}
	to, err := stage(c.To)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	out := &Exported{Model: s.spec.GetName(), Version: s.checkpoint.GetId(), Dir: to.here}
	if err := s.export(ctx, out); err != nil {
		return err
	}
	if err := to.carry(ctx, out.folders()...); err != nil {
		return err
	}
	out.Dir = to.to
	return show(stdout, c.AsJSON, out)
}

// folders are the sub-models' versions, below Dir, in the order in which they were written.
func (x *Exported) folders() (all []string) {
	for _, sub := range x.SubModels {
		all = append(all, filepath.Join(sub, strconv.FormatInt(x.Version, 10)))
	}
	return all
}

func (s *saved) export(ctx context.Context, out *Exported) error {
	version := strconv.FormatInt(out.Version, 10)
	entry := &checkpoint.Entry{Spec: s.spec, Version: out.Version, Job: s.job, Shards: uint32(len(s.checkpoint.GetShards())), Dense: map[string]checkpoint.Variable{},
		SyncSeq: math.MaxUint64} // followers of the deltas go on behind the least of the shards'
	var bands []checkpoint.Band
	for _, f := range s.checkpoint.GetShards() {
		if err := ctx.Err(); err != nil {
			return err
		}
		shard, err := checkpoint.ReadShardIn(s.checkpoint.GetDir(), f.GetPath())
		if err != nil {
			return fmt.Errorf("checkpoint %d: %w", out.Version, err)
		}
		if !maps.Equal(shard.Manifest.Offsets, s.checkpoint.GetOffsets()) {
			return fmt.Errorf("checkpoint %d: %s holds another state than the one that was saved", out.Version, f.GetPath())
		}
		shard.Spec = s.spec
		bare := checkpoint.Export(shard)
		name := "ps_" + strconv.Itoa(int(f.GetShard()))
		if _, err := checkpoint.CreateShard(filepath.Join(out.Dir, name, version), bare); err != nil {
			return err
		}
		for _, rows := range bare.Tables {
			out.Rows += len(rows)
		}
		out.SubModels = append(out.SubModels, name)
		maps.Copy(entry.Dense, bare.Dense)
		bands = append(bands, bare.Bands...)
		entry.SyncSeq = min(entry.SyncSeq, f.GetSyncSeq())
	}
	if s.exported != nil {
		entry.SyncSeq = s.exported.GetSyncSeq()
	}
	if err := checkpoint.Join(entry.Dense, bands); err != nil {
		return err
	}
	out.SubModels = append(out.SubModels, "entry")
	return checkpoint.WriteEntry(filepath.Join(out.Dir, "entry", version), entry)
}

// Print says for people what was written.
func (x *Exported) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "model\t%s, version %d, %d rows\n", x.Model, x.Version, x.Rows)
	fmt.Fprintf(t, "export\t%s: %v\n", x.Dir, x.SubModels)
	return t.Flush()
}
