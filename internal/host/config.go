package host

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/otlp"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/services/ps/machine"
	"github.com/monolith-go/monolith/services/replicaregistry"
	"github.com/monolith-go/monolith/services/trainer"
	"github.com/monolith-go/monolith/services/trainer/warm"
)

// Config says how large the whole is and where it lives.
type Config struct {
	Logs        connect.Config
	KafkaAccess kafka.Credentials // of brokers that are not embedded
	Kafka       string            // brokers; "": one is embedded
	Topics      Topics
	Keep        Retention
	Model       string // that the job learns; "": ModelName
	Job         string // "": JobName
	NoKafka     bool   // nothing is read from a topic: none is embedded or dialled
	Dir         string // of everything that lasts
	Shards      int    // of training and of serving
	Replicas    int    // of each serving shard
	Trainers    int
	Partitions  int
	Batch       int
	Format      string      // of the records; "": json
	Restore     warm.Config // the job from which a new one begins
	Restarts    Restarts
	Linger      time.Duration
	Sync        time.Duration
	Checkpoints time.Duration
	// CheckpointSteps is the number of steps after which a checkpoint is made, too; 0: none is.
	CheckpointSteps int64
	Processes       bool // each role is a process of its own
	Deterministic   bool
	Health          machine.Config // how shards look at their machine
	DumpFeatures    bool           // trainers write the features of all that they learn
	Ports           Ports
	NATSPort        int
	KafkaPort       int
	ZKPort          int
	ZKWords         []string
	ZKSuper         string
	GRPCPort        int // of the entry
	RESTPort        int
	Spans           bool // are written to a file in Dir
	OTLP            otlp.Config
}

// Restarts say how a role that ends is started again.
type Restarts struct {
	Most int           // ends in a row, each within a minute, after which the whole fails; 0: there is no limit
	Wait time.Duration // most between two starts, of which a third to all is waited; 0: short at first, and longer each time
}

// Register binds the flags.
func (r *Restarts) Register(fs *pflag.FlagSet) {
	fs.IntVar(&r.Most, "max-restarts", r.Most, "fail once a role has ended so many times in a row; 0: start it again without a limit")
	fs.DurationVar(&r.Wait, "restart-wait", r.Wait, "most `time` between two starts of a role that ends, of which a third to all is waited; 0: 100ms at first, up to 5s")
}

// Validate complains about figures that make no sense.
func (r *Restarts) Validate() error {
	if r.Most < 0 || r.Wait < 0 || r.Wait > time.Hour {
		return fmt.Errorf("--max-restarts %d must not be negative, and --restart-wait %v be 0 to 1h", r.Most, r.Wait)
	}
	return nil
}

// pauses are those between two starts.
func (r *Restarts) pauses() *retry.Backoff {
	if r.Wait > 0 {
		return retry.New(r.Wait, r.Wait)
	}
	return retry.New(firstBackoff, lastBackoff)
}

// Register binds the flags of a stack; dir is the folder by default.
func (c *Config) Register(fs *pflag.FlagSet, dir string) {
	fs.StringVar(&c.Logs.NATS, "nats", os.Getenv(connect.EnvNATS), "NATS `URL`; empty: an embedded server (MONOLITH_NATS)")
	c.Logs.RegisterKeys(fs)
	c.Logs.RegisterReplicas(fs)
	fs.StringVar(&c.Logs.Archive, "archive", flags.Env("MONOLITH_ARCHIVE", ""), connect.ArchiveUsage)
	fs.StringVar(&c.Logs.BZID, "bzid", flags.Env("MONOLITH_BZID", "demo"), "business `id`: the namespace of all subjects and paths (MONOLITH_BZID)")
	fs.StringVar(&c.Logs.Level, "log-level", flags.Env("MONOLITH_LOG", "warn"), "debug, info, warn or error (MONOLITH_LOG)")
	fs.StringVar(&c.Kafka, "kafka", os.Getenv("MONOLITH_KAFKA"), "Kafka `brokers`; empty: an embedded one (MONOLITH_KAFKA)")
	c.KafkaAccess.Register(fs)
	c.Topics.Register(fs)
	c.Keep.register(fs)
	fs.StringVar(&c.Dir, "dir", dir, "`folder` of everything that lasts; empty: a temporary one")
	fs.IntVar(&c.Shards, "shards", 2, "training parameter-server shards, and serving shards")
	fs.IntVar(&c.Replicas, "replicas", 2, "replicas of each serving shard")
	fs.IntVar(&c.Trainers, "trainers", 2, "trainers")
	fs.IntVar(&c.Partitions, "partitions", 4, "partitions of the ratings topic, when it is created here; one that is there may have more")
	fs.IntVar(&c.Batch, "batch", 64, "most records of one training step")
	fs.DurationVar(&c.Linger, "linger", 10*time.Millisecond, "time a training step waits for more ratings")
	fs.DurationVar(&c.Sync, "sync-interval", 25*time.Millisecond, "time between two deltas of a shard")
	fs.DurationVar(&c.Checkpoints, "checkpoint-interval", 30*time.Second, "time between checkpoints; 0: only on request")
	fs.BoolVar(&c.Processes, "processes", false, "run each role as a process of its own")
	fs.BoolVar(&c.Deterministic, "deterministic", false, "train in one fixed order, so that equal inputs give equal tables")
	c.Health.Register(fs)
	fs.BoolVar(&c.DumpFeatures, "dump-features", false, trainer.DumpFeaturesUsage)
	c.Ports.register(fs)
	fs.IntVar(&c.NATSPort, "nats-port", 4222, "`port` of the embedded NATS")
	fs.IntVar(&c.KafkaPort, "kafka-port", 9092, "`port` of the embedded Kafka broker")
	fs.IntVar(&c.ZKPort, "zk-port", 2181, "`port` of the ZooKeeper view")
	fs.StringSliceVar(&c.ZKWords, "zk-words", nil, "four-letter words that the ZooKeeper port answers; * is all (default: those of replica-registry)")
	fs.StringVar(&c.ZKSuper, "zk-super-digest-file", "", "`file` with the digest of the one who may do everything on the ZooKeeper port (default: nobody)")
	fs.IntVar(&c.GRPCPort, "grpc-port", 8500, "`port` of the entry's TensorFlow Serving gRPC API")
	fs.IntVar(&c.RESTPort, "rest-port", 8501, "`port` of the entry's REST API")
	c.OTLP.Register(fs)
	fs.BoolVar(&c.Spans, "traces", false, "write spans to traces.jsonl in the folder")
}

// Validate complains about what would only fail later.
func (c *Config) Validate() error {
	if err := c.Logs.Validate(); err != nil {
		return err
	}
	var errs []error
	for flag, v := range map[string]int{"shards": c.Shards, "replicas": c.Replicas, "trainers": c.Trainers, "partitions": c.Partitions, "batch": c.Batch} {
		if v < 1 || v > 1024 {
			errs = append(errs, fmt.Errorf("--%s %d: give 1 to 1024", flag, v))
		}
	}
	if _, err := c.KafkaAccess.Access(); err != nil {
		errs = append(errs, err)
	} else if c.KafkaAccess != (kafka.Credentials{}) && c.Kafka == "" {
		errs = append(errs, errors.New("the embedded Kafka broker is spoken to in the clear: name others with --kafka, or take --kafka-tls and --kafka-sasl away"))
	}
	if _, err := input.ParseFormat(cmp.Or(c.Format, input.JSON.String())); err != nil {
		errs = append(errs, fmt.Errorf("--format: %w", err))
	}
	errs = append(errs, c.Restarts.Validate(), c.Health.Validate(), c.Restore.Validate(), c.Topics.Of(c.Logs.BZID).Validate(), c.Keep.validate(), c.validatePorts(), c.OTLP.Validate())
	if c.Sync < time.Millisecond || c.Sync > time.Minute {
		errs = append(errs, fmt.Errorf("--sync-interval %v: give 1ms to 1m", c.Sync))
	}
	if err := (&replicaregistry.Config{ZK: replicaregistry.ZKPort{Words: c.ZKWords}}).Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	return nil
}

// model is what the job learns.
func (c *Config) model() string { return cmp.Or(c.Model, ModelName) }

// job is the name of the one that is trained.
func (c *Config) job() string { return cmp.Or(c.Job, JobName) }
