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

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/compat/tfgraph"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/warmupfile"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/vfs"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/trainer/warmup"
)

// Export writes a checkpoint as model servers load it.
type Export struct {
	Place
	To       string
	Format   string
	Version  int64
	Compress []string
	WarmUp   string        // a file
	Answered warmup.Config // or requests that were answered, by
	Kafka    string
	Access   kafka.Credentials
	AsJSON   bool
}

// The formats.
const (
	servable   = "servable"
	savedModel = "saved-model"
)

// Register binds the command's flags.
func (c *Export) Register(fs *pflag.FlagSet) {
	c.Place.Register(fs)
	fs.StringVar(&c.To, "to", "", "`folder`, here or of HDFS, that gets entry and ps_0, ps_1, …, with the version in each; of a saved-model the version alone")
	fs.StringVar(&c.Format, "format", servable, "servable: what model servers here load; saved-model: one SavedModel of TensorFlow's stock operations, which needs nothing of this system")
	fs.Int64Var(&c.Version, "model-version", 0, "the export's `version`; 0: the checkpoint's id")
	fs.StringArrayVar(&c.Compress, "compress", nil, "`TABLE=KIND`: serve the table's numbers as fp32, fp16, or fixed_r8 (bytes, up to 1; fixed_r8:R up to R) instead of as it declares; * stands for all tables; repeatable")
	fs.StringVar(&c.WarmUp, "warm-up", "", "`file` of requests, a TFRecord of PredictionLogs, that a model server replays before it takes others")
	c.Answered.Register(fs, "instead of a file the newest so many `requests` that model servers answered, from --kafka; 0: none")
	fs.StringVar(&c.Kafka, "kafka", flags.Env("MONOLITH_KAFKA", "127.0.0.1:9092"), "Kafka `brokers` for --warm-up-requests (MONOLITH_KAFKA)")
	c.Access.Register(fs)
	fs.BoolVar(&c.AsJSON, "json", false, "print one JSON object")
}

// Validate complains about what no folder is needed for.
func (c *Export) Validate() error {
	if c.To == "" {
		return fmt.Errorf("%w: --to must name the folder that gets the export; train has left one in exported_models", flags.ErrUsage)
	}
	switch c.Format {
	case servable:
	case savedModel:
		if c.WarmUp != "" || c.Answered.Requests != 0 {
			return fmt.Errorf("%w: --warm-up and --warm-up-requests: the requests are those of a servable's signatures: take it away, or export a servable", flags.ErrUsage)
		}
	case "onnx", "torchscript":
		return fmt.Errorf("%w: --format %s: it has no operation that looks rows up by ids in tables of any size, so no model here can be written in it: give %s or %s", flags.ErrUsage, c.Format, servable, savedModel)
	default:
		return fmt.Errorf("%w: --format %q must be %s or %s", flags.ErrUsage, c.Format, servable, savedModel)
	}
	if err := c.Answered.Validate(); err != nil {
		return fmt.Errorf("%w: --%w", flags.ErrUsage, err)
	}
	if c.WarmUp != "" && c.Answered.Requests > 0 {
		return fmt.Errorf("%w: --warm-up and --warm-up-requests both say what is replayed: take one away", flags.ErrUsage)
	}
	if c.Version < 0 {
		return fmt.Errorf("%w: --model-version %d must be above 0, or 0 for the checkpoint's id", flags.ErrUsage, c.Version)
	}
	if _, err := parseCompress(c.Compress); err != nil {
		return err
	}
	return c.Place.Validate()
}

// Exported is what was written.
type Exported struct {
	Model     string   `json:"model"`
	Version   int64    `json:"version"` // the checkpoint's id, unless the flag says another
	Step      uint64   `json:"step"`
	Dir       string   `json:"dir"`
	SubModels []string `json:"sub_models,omitempty"` // none: it is one SavedModel
	Rows      int      `json:"rows"`
	WarmUp    int      `json:"warm_up,omitempty"` // requests that model servers replay
}

// Run writes the export, the shards first and the entry last: what looks for a version finds it
// whole. A version that is there is an error.
func (c *Export) Run(ctx context.Context, stdout io.Writer) (err error) {
	s, err := c.find(ctx)
	if err != nil {
		return err
	}
	warmUp, err := c.warmUp(ctx, s.spec)
	if err != nil {
		return err
	}
	kinds, err := parseCompress(c.Compress)
	if err == nil {
		s.spec, err = compressed(s.spec, kinds)
	}
	if err != nil {
		return err
	}
	to, err := stage(c.To)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	out := &Exported{Model: s.spec.GetName(), Version: s.checkpoint.GetId(), Dir: to.here}
	if c.Version != 0 {
		out.Version = c.Version
	}
	if c.Format == savedModel {
		err = s.standalone(ctx, out)
	} else {
		out.WarmUp = warmUp.Requests
		err = s.export(ctx, out, warmUp.File)
	}
	if err != nil {
		return err
	}
	if err := to.carry(ctx, out.folders()...); err != nil {
		return err
	}
	out.Dir = to.to
	if c.Format == savedModel {
		return show(stdout, c.AsJSON, out)
	}
	if err := out.record(ctx, to); err != nil {
		return err
	}
	return show(stdout, c.AsJSON, out)
}

// folders are the sub-models' versions, below Dir, in the order in which they were written.
func (x *Exported) folders() (all []string) {
	if len(x.SubModels) == 0 {
		return []string{strconv.FormatInt(x.Version, 10)}
	}
	for _, sub := range x.SubModels {
		all = append(all, filepath.Join(sub, strconv.FormatInt(x.Version, 10)))
	}
	return all
}

func (s *saved) export(ctx context.Context, out *Exported, warmUp []byte) error {
	version, shards := strconv.FormatInt(out.Version, 10), len(s.checkpoint.GetShards())
	graph, err := tfgraph.Entry(out.Model, shards)
	if err != nil {
		return err
	}
	entry := &checkpoint.Entry{Spec: s.spec, Version: out.Version, Job: s.job, Shards: uint32(shards), Dense: map[string]checkpoint.Variable{},
		SyncSeq: math.MaxUint64, // followers of the deltas go on behind the least of the shards'
		Files:   map[string][]byte{tfgraph.FileName: graph}}
	if warmUp != nil {
		entry.Files[warmupfile.Name] = warmUp
	}
	var bands []checkpoint.Band
	for i, f := range s.checkpoint.GetShards() {
		if err := ctx.Err(); err != nil {
			return err
		}
		shard, err := s.shard(i)
		if err != nil {
			return err
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
		entry.SyncSeq, out.Step = min(entry.SyncSeq, f.GetSyncSeq()), max(out.Step, f.GetStep())
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

// standalone writes the model with all of its rows as one SavedModel.
func (s *saved) standalone(ctx context.Context, out *Exported) error {
	m := &tfgraph.Model{Spec: s.spec, Dense: map[string]checkpoint.Variable{}, Tables: map[string][]table.Row{}}
	var bands []checkpoint.Band
	for i, f := range s.checkpoint.GetShards() {
		if err := ctx.Err(); err != nil {
			return err
		}
		shard, err := s.shard(i)
		if err != nil {
			return err
		}
		for name, rows := range shard.Tables {
			m.Tables[name] = append(m.Tables[name], rows...)
			out.Rows += len(rows)
		}
		maps.Copy(m.Dense, shard.Dense)
		bands = append(bands, shard.Bands...)
		out.Step = max(out.Step, f.GetStep())
	}
	if err := checkpoint.Join(m.Dense, bands); err != nil {
		return err
	}
	return tfgraph.Write(filepath.Join(out.Dir, strconv.FormatInt(out.Version, 10)), m)
}

// Print says for people what was written.
func (x *Exported) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "model\t%s, version %d, %d rows\n", x.Model, x.Version, x.Rows)
	if x.WarmUp > 0 {
		fmt.Fprintf(t, "warm-up\t%d requests\n", x.WarmUp)
	}
	if len(x.SubModels) == 0 {
		fmt.Fprintf(t, "export\t%s\n", vfs.Join(x.Dir, strconv.FormatInt(x.Version, 10)))
	} else {
		fmt.Fprintf(t, "export\t%s: %v\n", x.Dir, x.SubModels)
	}
	return t.Flush()
}
