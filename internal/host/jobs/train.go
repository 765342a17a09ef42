package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/runconfig"
	"github.com/monolith-go/monolith/internal/input/files"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/services/ps/machine"
	"github.com/monolith-go/monolith/services/trainer"
	"github.com/monolith-go/monolith/services/trainer/source"
	"github.com/monolith-go/monolith/services/trainer/warm"
)

// Train learns files of records with everything in one process, and ends with them.
type Train struct {
	Data
	Spec            string
	Dir             string
	BZID            string
	Level           string
	Shards          int
	Trainers        int
	Partitions      int
	Epochs          int
	Steps           int64
	MaxSteps        int64
	Checkpoints     time.Duration
	CheckpointSteps int64
	Deterministic   bool
	Processes       bool
	SummaryDir      string
	Restore         warm.Config // the job from which a new one begins
	Restarts        host.Restarts
	Health          machine.Config
	DumpFeatures    bool
	Keep            int // checkpoints and exports on disk
	KeepEvery       time.Duration
	AsJSON          bool
	Stdin           io.ReadCloser // what --files - learns

	spec  *model.ModelSpec  // that of the file, unless it is set
	run   *runconfig.Report // nil: there is no run configuration
	extra []string          // flags of the trainers that this command has none for
}

// configured keeps what the run configuration came to, for the job's facts and the report.
func (c *Train) configured(r *runconfig.Report) { c.run = r }

// Register binds the command's flags.
func (c *Train) Register(fs *pflag.FlagSet) {
	c.Data.Register(fs)
	fs.Lookup("files").Usage += "; - alone is standard input"
	fs.StringVar(&c.Spec, "spec", "", "YAML `file` that declares the model")
	fs.StringVar(&c.Dir, "dir", DefaultDir, "`folder` of the job: its log, checkpoints and exports")
	fs.StringVar(&c.BZID, "bzid", flags.Env("MONOLITH_BZID", "demo"), "business `id`: the namespace of all subjects (MONOLITH_BZID)")
	fs.StringVar(&c.Level, "log-level", flags.Env("MONOLITH_LOG", "error"), "debug, info, warn or error (MONOLITH_LOG)")
	fs.IntVar(&c.Shards, "shards", 1, "parameter-server shards")
	fs.IntVar(&c.Trainers, "trainers", 1, "trainers")
	fs.IntVar(&c.Partitions, "partitions", 4, "into how many the files are shared, file i into partition i modulo that; at most one for each file. Each partition is learnt in its order, beside the others")
	fs.IntVar(&c.Epochs, "epochs", 1, "how often the files are learnt")
	fs.Int64Var(&c.Steps, "steps", 0, "stop after so many more steps of --batch records; 0: at the end of the files")
	fs.Int64Var(&c.MaxSteps, "max-steps", 0, "stop after so many steps since the job's first; 0: at the end of the files")
	fs.DurationVar(&c.Checkpoints, "checkpoint-interval", 30*time.Second, "time between checkpoints; 0: at the start and the end alone, and by --checkpoint-steps")
	fs.Int64Var(&c.CheckpointSteps, "checkpoint-steps", 0, "steps of all trainers together after which a checkpoint is made, too; 0: by the clock alone")
	fs.BoolVar(&c.Deterministic, "deterministic", false, "learn in one fixed order, so that equal inputs give equal tables")
	fs.BoolVar(&c.Processes, "processes", false, "run each role as a process of its own")
	fs.StringVar(&c.SummaryDir, "summary-dir", "", "`folder` for TensorBoard: loss, AUC, throughput and lag as event files. Empty: none")
	c.Restore.Register(fs)
	fs.IntVar(&c.Keep, "keep-checkpoints", 5, "checkpoints and exports kept on disk")
	fs.DurationVar(&c.KeepEvery, "keep-checkpoint-every", 0, "beside those, keep one checkpoint in this time until it is released; 0: none")
	c.Restarts.Register(fs)
	c.Health.Register(fs)
	fs.BoolVar(&c.DumpFeatures, "dump-features", false, trainer.DumpFeaturesUsage)
	fs.BoolVar(&c.AsJSON, "json", false, "print one JSON object, and progress as lines of JSON on standard error")
}

// Validate complains about what would only fail later, reads the spec and finds the files.
func (c *Train) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{flags.ErrUsage}, args...)...))
		}
	}
	check(c.Spec != "", "--spec must name the model's YAML file: monolith model init writes one")
	check(c.Dir != "", "--dir must name the job's folder")
	if err := onDisk("dir", c.Dir); err != nil {
		errs = append(errs, err)
	}
	check(c.Epochs >= 1 && c.Epochs <= MaxEpochs, "--epochs %d must be 1 to %d", c.Epochs, MaxEpochs)
	check(c.Steps >= 0 && c.MaxSteps >= 0, "--steps %d and --max-steps %d must not be negative", c.Steps, c.MaxSteps)
	if err := c.Restore.Validate(); err != nil {
		check(false, "%w", err)
	}
	check(c.Checkpoints >= 0, "--checkpoint-interval %v must not be negative", c.Checkpoints)
	check(c.CheckpointSteps >= 0, "--checkpoint-steps %d must not be negative", c.CheckpointSteps)
	if c.stdin() {
		if c.Stdin == nil {
			c.Stdin = os.Stdin
		}
		check(c.Spec != "-", "--spec - and --files - both read standard input: write the model to a file")
		check(c.Steps == 0 && c.MaxSteps == 0 && c.Epochs == 1, "standard input is learnt once, to its end: take --steps, --max-steps and --epochs away")
		check(!c.Deterministic, "--deterministic takes turns that follow from where records end, which standard input does not say: write it to files")
		check(!c.Restore.Offsets, "--restore-offsets: standard input begins where it begins: take it away")
		check(!c.Processes, "--processes would leave standard input to none of the roles: take it away")
		errs = append(errs, c.check())
	} else {
		errs = append(errs, c.Data.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.spec == nil {
		var err error
		if c.spec, err = specfile.Read(c.Spec, os.Stdin); err != nil {
			return err
		}
	}
	cfg := c.stack()
	return cfg.Validate()
}

// MaxEpochs is how often files may be learnt.
const MaxEpochs = 1000

// stack is what learning takes of a host.
func (c *Train) stack() host.Config {
	return host.Config{
		Restore: c.Restore, Restarts: c.Restarts, Logs: connect.Config{BZID: c.BZID, Level: c.Level}, NoKafka: true, Dir: c.Dir, Job: c.spec.GetName(), Model: c.spec.GetName(),
		Shards: c.Shards, Replicas: 1, Trainers: c.Trainers, Partitions: c.Partitions, Batch: c.Batch, Format: c.Format,
		Sync: syncEvery, Checkpoints: c.Checkpoints, CheckpointSteps: c.CheckpointSteps, Processes: c.Processes, Deterministic: c.Deterministic, Health: c.Health, DumpFeatures: c.DumpFeatures,
	}
}

// syncEvery is the time between two deltas of a shard: nobody serves them while files are learnt.
const syncEvery = 5 * time.Second

// roles are those that learning takes.
var roles = []string{"portal", "replica-registry", "ps", "trainer"}

// stdin says that standard input is learnt.
func (c *Train) stdin() bool { return len(c.Files) == 1 && c.Files[0] == source.Stdin }

// Run learns the files, from where an earlier start was stopped or killed, and prints the report.
func (c *Train) Run(ctx context.Context, stdout, stderr io.Writer) error {
	report, err := c.Learn(ctx, stderr)
	if report == nil {
		return err
	}
	return errors.Join(show(stdout, c.AsJSON, report), err)
}

// Learn is Run without the printing. A report beside an error is of what was learnt until then.
func (c *Train) Learn(ctx context.Context, stderr io.Writer) (_ *Learnt, err error) {
	d := driver{cfg: c, stderr: stderr}
	surveys := new(files.Surveys)
	if c.stdin() {
		d.stream = files.NewPipe(c.layout, c.Stdin)
		defer func() { _ = d.stream.Close() }() // it was only read
	} else if d.set, err = c.survey(ctx, surveys, stderr); err != nil {
		return nil, err
	}
	s, err := host.Start(ctx, c.stack())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }() // the folder is free behind it
	s.Surveys, s.Stdin = surveys, d.stream
	s.Tasks = slices.DeleteFunc(s.Tasks, func(t host.Task) bool { return !slices.Contains(roles, t.Role) })
	d.stack = s
	if err := d.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	limit, over, err := d.plan()
	if err != nil {
		return nil, err
	}
	if over {
		fmt.Fprintf(stderr, "all of it is learnt already\n")
		return d.report(ctx)
	}
	d.ends = d.total(limit)
	if j, _ := d.lineage(); len(j.Restorable()) > 0 {
		d.began = d.steps(j.Restorable()[0].GetOffsets())
	}
	for i := range s.Tasks {
		if s.Tasks[i].Role == "trainer" {
			s.Tasks[i].Ends = true
			s.Tasks[i].Args = slices.Concat(s.Tasks[i].Args, c.files(limit), c.told(), c.extra)
		}
	}
	if err := d.run(ctx); err != nil {
		return nil, err
	}
	l, err := d.report(context.WithoutCancel(ctx))
	if err != nil || d.stream == nil {
		return l, err
	}
	if _, err := d.stream.End(); err != nil {
		return l, fmt.Errorf("standard input: %w: what came before it is learnt", err)
	}
	return l, nil
}

// Declare has the command learn a model that is not the file's as it is written, by trainers with some flags
// that this command has none for.
func (c *Train) Declare(spec *model.ModelSpec, trainer ...string) { c.spec, c.extra = spec, trainer }

// survey reads the files, all of them, before anything is learnt.
func (c *Train) survey(ctx context.Context, surveys *files.Surveys, stderr io.Writer) (*files.Set, error) {
	began := time.Now()
	set, err := surveys.Survey(ctx, c.layout, c.paths, c.Partitions, c.Epochs)
	if err != nil {
		return nil, err
	}
	if set.Records() == 0 {
		return nil, fmt.Errorf("the %d files hold no record", set.Files())
	}
	fmt.Fprintf(stderr, "%d records in %d files, %d bytes, read in %.1fs\n", set.Records(), set.Files(), set.Bytes(), time.Since(began).Seconds())
	return set, nil
}

// files are the trainer's flags that name them; limit is that of the steps.
func (c *Train) files(limit int64) []string {
	if c.stdin() {
		return []string{"--container", c.layout.Container.String(), "--compression", c.layout.Compression.String(), "--files", source.Stdin}
	}
	args := []string{"--container", c.layout.Container.String(), "--compression", c.layout.Compression.String(),
		"--partitions", strconv.Itoa(c.Partitions), "--epochs", strconv.Itoa(c.Epochs), "--max-steps", strconv.FormatInt(limit, 10), "--stop-at-end"}
	for _, f := range c.Files {
		args = append(args, "--files", f)
	}
	return args
}

// told are the trainer's flags that say how the job is kept, and by what it was steered.
func (c *Train) told() []string {
	args := []string{"--keep-checkpoints", strconv.Itoa(c.Keep), "--keep-checkpoint-every", c.KeepEvery.String(), "--summary-dir", c.SummaryDir}
	for _, o := range c.run.Facts() {
		args = append(args, "--run-override", o)
	}
	return args
}

// limitOf is the number of steps after which the job ends that has made done of them; 0: none.
func (c *Train) limitOf(done int64) int64 {
	limit := int64(math.MaxInt64)
	if c.Steps > 0 {
		limit = done + c.Steps
	}
	if c.MaxSteps > 0 {
		limit = min(limit, c.MaxSteps)
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}
