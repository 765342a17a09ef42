// Package tpurunner is the original's runner of embedding tasks for TPUs: a task's file becomes a model with
// vocabularies, and files and flags of train and evaluate, which do the work.
package tpurunner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/compat/embeddingtask"
	"github.com/monolith-go/monolith/internal/host/jobs"
	"github.com/monolith-go/monolith/internal/input/files"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/vfs"
)

// Runner is one run of it.
type Runner struct {
	Task, ModelDir, Mode                string
	TPU, GCPProject, TPUZone, TFVersion string
	SaveCheckpointsSteps                int64
	IterationsPerLoop                   int
	PipelineExecution                   bool
	EnableTPUVersionConfig              bool
	HostCallEvery                       int
	StoppingSignals                     bool
	CPUTest                             bool
	PartitionStrategy                   string
	OverwriteEndDate                    string
	BZID, Level                         string
	AsJSON                              bool

	task  *embeddingtask.Task
	bound *model.ModelSpec // with the task's vocabularies
	notes []string         // what was made of the task, and what of it does nothing here
	train jobs.Train
	eval  checkpoints
}

// What the original computes with.
const (
	coresPerHost   = 8
	cpuTestBatch   = 8
	cpuTestSteps   = 100
	checkpointsBy  = 600 * time.Second // unless the task says otherwise
	maxVocabulary  = 1 << 20           // bytes; a line for each slot has fewer
	modeTrain      = "train"
	modeEval       = "eval"
	modeBoth       = "train_and_eval"
	hostCallFolder = "host_call"
	evalFolder     = "eval"
)

// Command is monolith tpu-runner, with the original's flags.
func Command() *cobra.Command {
	var c Runner
	cmd := &cobra.Command{
		Use:   "tpu-runner",
		Short: "Train or evaluate an embedding task of the original's TPU runner, on this machine's processors",
		Long: "Reads a task with the original's parameters (vocabularies by slot, QR hashing, files by date, host calls),\n" +
			"binds it to the model that it names, and learns it as train does, in --model_dir. Mode eval evaluates each\n" +
			"checkpoint there, also while they are made, up to the task's max_steps.",
		Example: "  monolith tpu-runner --task task.yaml --model_dir model\n" +
			"  monolith tpu-runner --task task.yaml --model_dir model --mode eval",
		Args: flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			return c.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.Register(cmd.Flags())
	return cmd
}

// Register binds the original's flags, and a few of ours.
func (c *Runner) Register(fs *pflag.FlagSet) {
	fs.StringVar(&c.Task, "task", "", "YAML `file` with the task's parameters")
	fs.StringVar(&c.ModelDir, "model_dir", "", "`folder` of the job: its log, checkpoints, exports and summaries")
	fs.StringVar(&c.Mode, "mode", modeTrain, "train or eval")
	fs.StringVar(&c.TPU, "tpu", "", "does nothing: the step is computed on this machine's processors")
	fs.StringVar(&c.GCPProject, "gcp_project", "", "does nothing: no TPU is asked for")
	fs.StringVar(&c.TPUZone, "tpu_zone", "", "does nothing: no TPU is asked for")
	fs.StringVar(&c.TFVersion, "tf_version", "nightly", "does nothing: no TPU is asked for")
	fs.Int64Var(&c.SaveCheckpointsSteps, "save_checkpoints_steps", 0, "`steps` between two checkpoints, unless the task says how many; 0: every 10 minutes")
	fs.IntVar(&c.IterationsPerLoop, "iterations_per_loop", 10000, "does nothing: each step is the host's, so there is no loop to return from")
	fs.BoolVar(&c.PipelineExecution, "pipeline_execution", false, "look up the next step's rows while one computes, which costs accuracy")
	fs.BoolVar(&c.EnableTPUVersionConfig, "enable_tpu_version_config", true, "does nothing: no TPU is asked for")
	fs.IntVar(&c.HostCallEvery, "host_call_every_n_steps", 500, "`steps` between two host calls, which write to host_call in --model_dir; 0: none")
	fs.BoolVar(&c.StoppingSignals, "enable_stopping_signals", false, "refuse a task that repeats its files: training ends with them, signals or not")
	fs.BoolVar(&c.CPUTest, "cpu_test", false, "learn a few small steps in one fixed order, to see that the task runs")
	fs.StringVar(&c.PartitionStrategy, "partition_strategy", "mod", "mod: a row is on shard id modulo the number of shards")
	fs.StringVar(&c.OverwriteEndDate, "overwrite_end_date", "", "eight digits in place of the task's train.end_date")
	fs.StringVar(&c.BZID, "bzid", flags.Env("MONOLITH_BZID", "demo"), "business `id`: the namespace of all subjects (MONOLITH_BZID)")
	fs.StringVar(&c.Level, "log-level", flags.Env("MONOLITH_LOG", "error"), "debug, info, warn or error (MONOLITH_LOG)")
	fs.BoolVar(&c.AsJSON, "json", false, "print JSON objects")
}

// Validate reads the task and what it names, and complains about what would only fail later.
func (c *Runner) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{flags.ErrUsage}, args...)...))
		}
	}
	check(c.Task != "", "--task must name the file with the task's parameters")
	check(c.ModelDir != "", "--model_dir must name the job's folder")
	check(c.Mode != modeBoth, "--mode %s is not done in one process: run --mode %s beside --mode %s, or monolith train-and-evaluate", modeBoth, modeTrain, modeEval)
	check(slices.Contains([]string{modeTrain, modeEval, modeBoth}, c.Mode), "--mode %q must be %s or %s", c.Mode, modeTrain, modeEval)
	check(c.SaveCheckpointsSteps >= 0 && c.HostCallEvery >= 0, "--save_checkpoints_steps and --host_call_every_n_steps must not be negative")
	check(c.PartitionStrategy == "mod", "--partition_strategy %q: rows are shared out by mod", c.PartitionStrategy)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := c.read(); err != nil {
		return fmt.Errorf("%w: --task %s: %w", flags.ErrUsage, c.Task, err)
	}
	if c.Mode == modeEval {
		return c.eval.Validate()
	}
	return c.train.Validate()
}

// read makes the job of the task.
func (c *Runner) read() error {
	text, err := os.ReadFile(c.Task)
	if err != nil {
		return err
	}
	if c.task, err = embeddingtask.Parse(text); err != nil {
		return err
	}
	t := c.task
	t.Train.EndDate = cmp.Or(c.OverwriteEndDate, t.Train.EndDate)
	if err := t.CheckDates(); err != nil {
		return err
	}
	if t.Train.Repeat && c.StoppingSignals {
		return errors.New("train.repeat has no end, which --enable_stopping_signals asks for: take one of them away")
	}
	if t.Train.Repeat && t.Train.MaxSteps == 0 && !c.CPUTest {
		return errors.New("train.repeat has no end: give train.max_steps")
	}
	c.notes = append(c.notes, t.Idle()...)
	if c.TPU != "" {
		c.notes = append(c.notes, "--tpu does nothing: steps are computed on this machine's processors")
	}
	data := jobs.Data{Format: t.Format, Container: "auto", Compression: "auto", Batch: c.batch()}
	if c.Mode == modeEval {
		return c.toEvaluate(data)
	}
	return c.toTrain(data)
}

// batch is the records of a step: those of all cores of a host.
func (c *Runner) batch() int {
	if c.CPUTest {
		return cpuTestBatch
	}
	return coresPerHost * c.task.Train.PerCoreBatchSize
}

// toTrain makes Train of the task.
func (c *Runner) toTrain(data jobs.Data) (err error) {
	t := c.task
	if data.Files, err = c.files(); err != nil {
		return err
	}
	c.train.Register(pflag.NewFlagSet("train", pflag.ContinueOnError)) // what is not said here is as train has it
	c.train.Data, c.train.Spec, c.train.Dir, c.train.BZID, c.train.Level = data, c.beside(t.Spec), c.ModelDir, c.BZID, c.Level
	c.train.Partitions, c.train.MaxSteps, c.train.Checkpoints, c.train.Deterministic = t.FilesInterleave, t.Train.MaxSteps, checkpointsBy, t.Deterministic
	c.train.AsJSON = c.AsJSON
	if t.Train.Repeat || c.CPUTest {
		c.train.Epochs = jobs.MaxEpochs
	}
	if c.CPUTest {
		c.train.Deterministic, c.train.Partitions, c.train.MaxSteps = true, 1, cmp.Or(t.Train.MaxSteps, cpuTestSteps)
	}
	if n := t.Train.SaveCheckpointsSecs; n > 0 {
		c.train.Checkpoints = time.Duration(n) * time.Second
	} else if n := c.steps(); n > 0 {
		c.train.Checkpoints, c.train.CheckpointSteps = 0, n
	}
	return c.bind()
}

// steps are those between two checkpoints: what the task says counts above the flag.
func (c *Runner) steps() int64 {
	if c.task.Train.SaveCheckpointsSecs > 0 {
		return 0
	}
	return cmp.Or(c.task.Train.SaveCheckpointsSteps, c.SaveCheckpointsSteps)
}

// trainerArgs are the trainer's flags that train has none for.
func (c *Runner) trainerArgs() []string {
	t := c.task
	var args []string
	if c.PipelineExecution && !t.Deterministic && !c.CPUTest {
		args = append(args, "--pipeline", "1")
	}
	if c.HostCallEvery == 0 {
		return args
	}
	args = append(args, "--host-call-dir", filepath.Join(c.ModelDir, hostCallFolder), "--host-call-every", strconv.Itoa(c.HostCallEvery))
	if t.EnableCaching {
		args = append(args, "--host-call-cached")
	}
	for _, m := range []struct {
		on   bool
		name string
	}{{t.EnableHostCallScalars, "scalars"}, {t.EnableHostCallNorms, "norms"}, {t.EnableDeepInsight, "examples"}} {
		if m.on {
			args = append(args, "--host-call-metrics", m.name)
		}
	}
	return args
}

// bind reads the model and gives it the task's vocabularies.
func (c *Runner) bind() error {
	spec, err := specfile.Read(c.train.Spec, nil)
	if err != nil {
		return err
	}
	sizes, err := c.vocabulary(context.Background())
	if err != nil {
		return err
	}
	bound, unbounded, err := c.task.Bind(spec, sizes)
	if err != nil {
		return err
	}
	if len(unbounded) > 0 {
		c.notes = append(c.notes, fmt.Sprintf("no vocabulary is known of the slots of %s: their tables grow as ids come", strings.Join(unbounded, ", ")))
	}
	for _, f := range bound.GetFeatures() {
		if v := f.GetVocabulary(); v.GetDivisor() > 0 {
			c.notes = append(c.notes, fmt.Sprintf("feature %s: %d ids, as %d remainders and %d quotients", f.GetName(), v.GetSize(), v.GetDivisor(), (v.GetSize()-1)/v.GetDivisor()+1))
		} else if v != nil {
			c.notes = append(c.notes, fmt.Sprintf("feature %s: %d ids", f.GetName(), v.GetSize()))
		}
	}
	c.bound = bound
	c.train.Declare(bound, c.trainerArgs()...)
	return nil
}

// vocabulary reads the file that counts: the last day's, where there is exactly one, or the task's own.
func (c *Runner) vocabulary(ctx context.Context) (map[uint32]uint64, error) {
	path := c.task.VocabFilePath
	if pattern := c.task.VocabularyPattern(); pattern != "" {
		found, err := files.Expand([]string{pattern})
		if err == nil && len(found) == 1 {
			path = found[0]
		} else if err == nil || errors.Is(err, files.ErrNone) {
			c.notes = append(c.notes, fmt.Sprintf("%s names %d files, not one: the vocabulary is that of %q", pattern, len(found), path))
		} else {
			return nil, err
		}
	}
	if path == "" {
		return nil, nil
	}
	text, err := vfs.ReadText(ctx, path, maxVocabulary)
	if err != nil {
		return nil, fmt.Errorf("vocab_file_path: %w", err)
	}
	sizes, err := embeddingtask.ReadVocabulary(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return sizes, nil
}

// files are those that are learnt, in the order of their names.
func (c *Runner) files() ([]string, error) {
	pattern, within, err := c.task.Pattern()
	if err != nil {
		return nil, err
	}
	found, err := files.Expand([]string{pattern})
	if err != nil {
		return nil, err
	}
	if found = slices.DeleteFunc(found, func(path string) bool { return !within(path) }); len(found) == 0 {
		return nil, fmt.Errorf("%w within the dates of the task that %s names", files.ErrNone, pattern)
	}
	return found, nil
}

// beside is a path as from the task's folder.
func (c *Runner) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.Task), path)
}

// Run trains, or evaluates, and prints what came of it.
func (c *Runner) Run(ctx context.Context, stdout, stderr io.Writer) error {
	for _, note := range c.notes {
		fmt.Fprintln(stderr, note)
	}
	if c.Mode == modeEval {
		return c.eval.Run(ctx, stdout)
	}
	return c.train.Run(ctx, stdout, stderr)
}
