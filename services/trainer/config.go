// Package trainer learns a model from a Kafka topic: it shares the topic's partitions
// with other trainers by leases, takes each batch through lookup, forward, backward and
// apply on the parameter-server shards, and, when it is the chief of its job, makes the
// checkpoints and exports.
package trainer

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/hostcall"
	"github.com/monolith-go/monolith/services/trainer/source"
	"github.com/monolith-go/monolith/services/trainer/step"
	"github.com/monolith-go/monolith/services/trainer/warm"
	"github.com/monolith-go/monolith/services/trainer/warmup"
)

// Config of one trainer.
type Config struct {
	// Job names the training job; all its trainers and shards share it.
	Job string
	// Model is the declared model that the job learns. The trainer waits for it.
	Model string
	// Name is this trainer's own: its container id, and its holder name in leases. Two
	// live trainers of a job must differ in it. Default trainer-0.
	Name string
	// Index is its number among the job's trainers, as it is shown in the fleet.
	Index int
	// Brokers are Kafka addresses, host:port.
	Brokers []string
	// Access is with what rights these are spoken to. Default: in the clear, by nobody.
	Access kafka.Credentials
	// Format is how the topic's records are written: json, one object each, example, a
	// tf.train.Example each, or one of Monolith's, see [input.ParseFormat]. Default json.
	Format string
	// Topic holds the records. Default ratings, and <bzid>.ratings
	// outside of the namespace demo.
	Topic string
	// Group is the consumer group to whose offsets Kafka is told where each checkpoint stands,
	// for tools that show lag; nobody reads them back. Default monolith-<job>, and
	// <bzid>.monolith-<job> outside of the namespace demo; none: it is not told.
	Group string
	// Files, if any are named, are learnt in place of a topic. The job ends with them.
	Files source.FilesConfig
	// Restore is the job from which a new one begins. Default: none.
	Restore warm.Config
	// Overrides are what a run configuration has set, as key=value, for jobStarted to name. Default: none.
	Overrides []string
	// Shards is the number of parameter-server shards of the job. Default 2.
	Shards int
	// Batch is the most records learnt in one step; in deterministic mode exactly that
	// many offsets. Default 64, at most 4096.
	Batch int
	// Linger is how long a first record waits for more. Default 10 ms.
	Linger time.Duration
	// Pipeline is how many steps ahead of the one that computes rows are looked up: 1, or 0, with
	// which a partition's step reads what its step before has changed, as in deterministic mode
	// it always does. Default 0.
	Pipeline int
	// RecordAhead is how far ahead of this machine's clock, or of the newest checkpoint's
	// time should that be later, a record may be dated. One beyond is parked: rows expire
	// by the time of records. Default 24 h.
	RecordAhead time.Duration
	// Deterministic learns the batches of all partitions in one order, so that a
	// crashed job ends with the same bits as one that was not.
	Deterministic bool
	// StopAtEnd ends the job once every partition is learnt up to the end that was
	// there when the trainer started. In deterministic mode the topic must be complete
	// by then: the order of turns follows from the ends.
	StopAtEnd bool
	// CheckpointEvery is the time between checkpoints, 0: only on request. The flag's
	// default is 60 s.
	CheckpointEvery time.Duration
	// CheckpointSteps is the number of steps after which a checkpoint is made, at the first look behind
	// them. Default 0: checkpoints go by the clock alone.
	CheckpointSteps int64
	// ExportEvery makes every n-th checkpoint of the clock an export too; those at the
	// job's start and end always are. Default 1.
	ExportEvery int
	// WarmUp says how many of the newest requests an export takes along for model servers to replay; in
	// deterministic mode there are none, since what was asked follows from no record. The flag's default
	// is 100.
	WarmUp warmup.Config
	// Keep is how many checkpoints and exports stay on disk; exports that a load or a
	// plan names stay besides, as do checkpoints that are exempt, and their exports.
	// Default 5, at most 500.
	Keep int
	// KeepEvery exempts one checkpoint in that time from Keep. Default 0: none.
	KeepEvery time.Duration
	// Dir is the job's folder, the same for its shards: model.ckpt-<id>/ and
	// exported_models/ lie in it.
	Dir string
	// LeaseTTL is how long a dead trainer keeps its partitions, whole seconds.
	// Default 3 s.
	LeaseTTL time.Duration
	// LabelRange, if two numbers, is the least and the greatest value of the label's field;
	// a record beyond is parked. Default: any number.
	LabelRange []float64
	// TimeField, if named, must hold whole seconds since 1970 in every record that has it;
	// others are parked. Default: none is looked at.
	TimeField string

	// Controller is where the chief serves the original's service Controller, host:port, of which
	// port 0 is any that is free; clients read it in controller_server_addr.txt in Dir. Default: nowhere.
	Controller string
	// ControllerTLS are its certificates. Default: those of all ports.
	ControllerTLS mtls.Files
	// InsecureController serves it in plain text beyond this machine, too.
	InsecureController bool
	// SummaryDir is the folder into which this trainer writes its figures for TensorBoard, each trainer
	// into a folder of its own below it. Default: none.
	SummaryDir string
	// DumpFeatures writes the features of all that this trainer learns into features/ in Dir. Default: only
	// when the job is asked for some.
	DumpFeatures bool
	// HostCall says of which steps TensorBoard is told more than figures. Default: of none.
	HostCall hostcall.Config
	// ActionEvery is how often the chief looks for the original's file monolith_action in Dir. Default 0: never.
	ActionEvery time.Duration

	registered bool // by Register: what is zero now is meant
}

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "trainer-0")
	c.Format = cmp.Or(c.Format, input.JSON.String())
	c.Shards = cmp.Or(c.Shards, 2)
	c.Batch = cmp.Or(c.Batch, 64)
	c.RecordAhead = cmp.Or(c.RecordAhead, 24*time.Hour)
	c.ExportEvery = cmp.Or(c.ExportEvery, 1)
	c.Keep = cmp.Or(c.Keep, 5)
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 3*time.Second)
	c.Files.Defaults()
	c.StopAtEnd = c.StopAtEnd || c.Files.Given() && !c.Files.Stdin()
	if !c.registered {
		c.Linger = cmp.Or(c.Linger, 10*time.Millisecond)
	}
	return c
}

// DumpFeaturesUsage explains the flag of that name.
const DumpFeaturesUsage = "write the features of all that is learnt as Monolith's ExampleBatch files into features/ in the job's folder; monolith job dump asks for some"

// Register binds the fields to flags. Fields that are zero take their default first.
func (c *Config) Register(fs *pflag.FlagSet) {
	*c = c.withDefaults()
	c.CheckpointEvery = cmp.Or(c.CheckpointEvery, time.Minute)    // by flag alone: in code a zero says none
	c.WarmUp.Requests = cmp.Or(c.WarmUp.Requests, warmup.Default) // likewise
	c.registered = true
	fs.StringVar(&c.Job, "job", c.Job, "training `job`")
	fs.StringVar(&c.Model, "model", c.Model, "declared `model` that the job learns")
	fs.StringVar(&c.Name, "name", c.Name, "this trainer's `name`, unique in the job")
	fs.IntVar(&c.Index, "index", c.Index, "this trainer's number in the job")
	fs.StringSliceVar(&c.Brokers, "kafka", c.Brokers, "Kafka `host:port`, repeatable")
	c.Access.Register(fs)
	fs.StringVar(&c.Topic, "topic", c.Topic, "training `topic`; empty: ratings, and <bzid>.ratings outside of the namespace demo")
	fs.StringVar(&c.Group, "offsets-group", c.Group, "Kafka `group` that is told where each checkpoint stands, as information for tools that show lag; none: no group. Empty: monolith-<job>, and <bzid>.monolith-<job> outside of the namespace demo")
	fs.StringVar(&c.Format, "format", c.Format, input.FormatUsage)
	c.Files.Register(fs)
	c.Restore.Register(fs)
	fs.StringArrayVar(&c.Overrides, "run-override", c.Overrides, "a `key=value` of the run configuration that this trainer was started by, to be told in jobStarted; repeatable")
	fs.IntVar(&c.Shards, "shards", c.Shards, "parameter-server shards of the job")
	fs.IntVar(&c.Batch, "batch", c.Batch, "most records of one step")
	fs.DurationVar(&c.Linger, "linger", c.Linger, "how long a first record waits for more")
	fs.IntVar(&c.Pipeline, "pipeline", c.Pipeline, "1: look up the next step's rows while one computes, which costs accuracy; 0: after it was applied")
	fs.DurationVar(&c.RecordAhead, "record-ahead", c.RecordAhead, "how far ahead of this machine's clock a record may be dated; one beyond is parked")
	fs.BoolVar(&c.Deterministic, "deterministic", c.Deterministic, "learn in one fixed order, to equal bits")
	fs.BoolVar(&c.StopAtEnd, "stop-at-end", c.StopAtEnd, "end the job at the end of the topic as it is now")
	fs.DurationVar(&c.CheckpointEvery, "checkpoint-every", c.CheckpointEvery, "time between checkpoints, 0 for none")
	fs.Int64Var(&c.CheckpointSteps, "checkpoint-steps", c.CheckpointSteps, "make a checkpoint once so many steps are learnt since the last one; 0: by the clock alone")
	fs.IntVar(&c.ExportEvery, "export-every", c.ExportEvery, "every n-th checkpoint is an export")
	c.WarmUp.Register(fs, "the newest so many `requests` that model servers answered go into an export, and are replayed before its version is AVAILABLE; none in deterministic mode, or without Kafka")
	fs.IntVar(&c.Keep, "keep-checkpoints", c.Keep, "checkpoints and exports kept on disk")
	fs.DurationVar(&c.KeepEvery, "keep-checkpoint-every", c.KeepEvery, "beside those, keep one checkpoint in this time until it is released, as the original does every 24h; 0: none")
	fs.StringVar(&c.Dir, "dir", c.Dir, "the job's `folder`, the same for its shards")
	fs.DurationVar(&c.LeaseTTL, "lease-ttl", c.LeaseTTL, "how long a dead trainer keeps its partitions")
	fs.StringVar(&c.Controller, "controller", c.Controller, "`host:port` of the original's gRPC service Controller, port 0: any that is free; the job's chief serves it and writes where to controller_server_addr.txt in --dir. Empty: off")
	c.ControllerTLS.RegisterPort(fs, "controller-tls", "the controller")
	fs.BoolVar(&c.InsecureController, "insecure-controller", c.InsecureController, "serve the controller in plain text, beyond this machine, too")
	fs.StringVar(&c.SummaryDir, "summary-dir", c.SummaryDir, "`folder` for TensorBoard: figures as event files, every 10s, below it a folder for each trainer. Empty: none")
	fs.BoolVar(&c.DumpFeatures, "dump-features", c.DumpFeatures, DumpFeaturesUsage)
	c.HostCall.Register(fs)
	fs.DurationVar(&c.ActionEvery, "action-every", c.ActionEvery, "time between looks for the original's file monolith_action in --dir, which it did every 60s; 0: never")
	fs.Float64SliceVar(&c.LabelRange, "label-range", c.LabelRange, "least and greatest `min,max` of the label's field; a record beyond is parked. Empty: any number")
	fs.StringVar(&c.TimeField, "time-field", c.TimeField, "`field` that must hold whole seconds since 1970 where a record has it. Empty: none")
}

const maxKeep = lineage.Kept - lineage.MaxExempt - 12 // some room for those begun before the oldest is told to be gone

// Validate returns every complaint about c with its defaults, joined.
func (c *Config) Validate() error {
	d := c.withDefaults()
	c = &d
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("trainer: "+format, args...))
		}
	}
	check(c.Job != "" && !strings.Contains(c.Job, "/"), "job %q must be named, without a slash", c.Job)
	check(c.Model != "", "model must be named")
	check(c.Name != "", "name must be given, another one for each trainer")
	check(c.Index >= 0, "index %d is negative", c.Index)
	check(len(c.Brokers) > 0 || c.Files.Given(), "kafka must name at least one broker")
	if c.Topic != "" {
		errs = append(errs, kafka.ValidTopic(c.Topic))
	}
	format, err := input.ParseFormat(c.Format)
	if err != nil {
		errs = append(errs, fmt.Errorf("trainer: format: %w", err))
	} else {
		errs = append(errs, c.Files.Validate(format, check), c.Restore.Validate())
	}
	check(!c.Files.Stdin() || !c.Deterministic && !c.StopAtEnd, "the end of standard input is not known, from which deterministic and stop-at-end follow: name files, or take them away")
	check(c.Shards > 0, "shards must be 1 or more, not %d", c.Shards)
	check(c.Batch > 0 && c.Batch <= step.MaxBatch, "batch must be 1 to %d, not %d", step.MaxBatch, c.Batch)
	check(c.Linger >= 0 && c.Linger <= time.Second, "linger must be between 0 and 1s, not %v", c.Linger)
	check(c.Pipeline == 0 || c.Pipeline == 1, "pipeline must be 0 or 1, not %d", c.Pipeline)
	check(c.RecordAhead > 0, "record-ahead must be positive, not %v", c.RecordAhead)
	check(c.CheckpointEvery >= 0, "checkpoint-every %v is negative", c.CheckpointEvery)
	check(c.CheckpointSteps >= 0, "checkpoint-steps %d is negative", c.CheckpointSteps)
	check(c.ExportEvery > 0, "export-every must be 1 or more, not %d", c.ExportEvery)
	if err := c.WarmUp.Validate(); err != nil {
		check(false, "%w", err)
	}
	check(c.Keep > 0 && c.Keep <= maxKeep, "keep-checkpoints must be 1 to %d, not %d", maxKeep, c.Keep)
	check(c.KeepEvery == 0 || c.KeepEvery >= time.Second, "keep-checkpoint-every must be 0 or 1s and more, not %v", c.KeepEvery)
	check(filepath.IsAbs(c.Dir), "dir %q must be an absolute path", c.Dir)
	check(c.LeaseTTL >= time.Second && c.LeaseTTL%time.Second == 0, "lease-ttl must be whole seconds, 1s or more, not %v", c.LeaseTTL)
	check(c.ActionEvery == 0 || c.ActionEvery >= time.Second, "action-every must be 0 or 1s and more, not %v", c.ActionEvery)
	if c.Controller != "" {
		_, _, err := net.SplitHostPort(c.Controller)
		check(err == nil, "controller %q must be host:port: %v", c.Controller, err)
	}
	errs = append(errs, c.HostCall.Validate())
	check(validRange(c.LabelRange), "label-range must be two numbers, the least and the greatest, not %v", c.LabelRange)
	return errors.Join(errs...)
}
