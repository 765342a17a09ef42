package modelserver

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/modelserver/entry"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// Config of one model server. The zero value plus Container serves on free loopback
// ports and follows deltas.
type Config struct {
	// Container is the id under which this server signals what it applied; the
	// supervisor's container. Required.
	Container string
	// GRPC, HTTP and Rows are listen addresses: TensorFlow Serving's gRPC and REST
	// API, and the framed row protocol (host:port or unix:///path). Default 127.0.0.1:0.
	GRPC, HTTP, Rows string
	// GRPCTLS and RESTTLS are the certificates of these two ports. Default: Env.TLS.
	GRPCTLS, RESTTLS mtls.Files
	// InsecureGRPC, InsecureREST and InsecureRows have these ports in plain text, beyond this
	// machine, too.
	InsecureGRPC, InsecureREST, InsecureRows bool
	// BaseDir is where relative base paths of a model configuration start: the folder
	// of model-sync's copies. Default: the working directory.
	BaseDir string
	// ModelConfigFile is a ModelServerConfig in text form that says what is served, until
	// somebody sends another configuration. ModelConfigPoll is how many seconds pass between two
	// looks at it; 0: it is read at the start alone.
	ModelConfigFile string
	ModelConfigPoll int
	// AllowPendingLabels takes version labels of versions that are not AVAILABLE from a
	// HandleReloadConfigRequest, as they are taken from ModelConfigFile.
	AllowPendingLabels bool
	// MonitoringConfigFile is a MonitoringConfig in text form: whether and where the REST port
	// shows TensorFlow Serving's Prometheus metrics.
	MonitoringConfigFile string
	// EnableBatching computes requests that come at once together, by the BatchingParameters in
	// text form of BatchingParametersFile.
	EnableBatching         bool
	BatchingParametersFile string
	// SSLConfigFile is an SSLConfig in text form: the certificate of the gRPC port, and whether
	// its clients must show theirs. A supervisor does not speak TLS with its server.
	SSLConfigFile string
	// EnableModelWarmUp replays assets.extra/tf_serving_warmup_requests of an entry's version
	// before it is AVAILABLE. It is on but where its flag says otherwise.
	EnableModelWarmUp bool
	// WarmUpWait is how long that waits for the rows of the version, which its shards read meanwhile. The
	// flag's default is 10 s.
	WarmUpWait time.Duration
	// Frozen serves the exports as they are, even where the plan names a training job.
	Frozen bool
	// OfModel is the model whose sub-models the names entry and ps_<n> are, as the original's agents
	// write them into a server's file. Default: they are models by themselves.
	OfModel string
	// Brokers and PredictionsTopic receive impressions; no brokers, no impressions.
	// Default topic predictions, and <bzid>.predictions outside of the namespace demo.
	Brokers          []string
	Access           kafka.Credentials
	PredictionsTopic string
	// SampleRate is the share of requests that leave impressions without asking for them
	// (x-impression). Default 0.01; negative, or 0 by its flag: none.
	SampleRate float64
	// MaxBatch is the most rows one Predict may have. Default 4096.
	MaxBatch int
	// LookupTimeout is how long one replica of a shard may take before another one is
	// asked; LookupRetries is how many more are asked. Defaults 200 ms and 2.
	LookupTimeout time.Duration
	LookupRetries int
	// LoadBytes is how many bytes of export files are read at once; more waits. A folder
	// that is greater is read alone. Default 256 MiB.
	LoadBytes int64
	// LoadRate is how many bytes of export files all loads together read in a second. Default 0: as fast
	// as they come.
	LoadRate int64
	// LoadTurn is how long a replica that answers for a shard waits for one that comes before it in the plan
	// to have the next version. Default 5 min; negative, or 0 by its flag: it does not wait.
	LoadTurn time.Duration
	// PollInterval is how often base paths are looked at for new versions. Default 1 s.
	PollInterval time.Duration
	// Linger is how long rows of a version that has been replaced go on answering after
	// the last entry asked for it. Default 5 s.
	Linger time.Duration
	// SignalInterval is how often applied deltas are signalled. Default 200 ms.
	SignalInterval time.Duration
	// SnapshotDir keeps the views' snapshots; empty: the views are folded from the
	// start of the log.
	SnapshotDir string
	// Drain is how long requests in flight may take to end at a stop. Default 5 s.
	Drain time.Duration

	// What follows are TensorFlow Serving's ways of saying the same, by flags alone; without a
	// Container they make the server one by itself, which needs no log.

	// GRPCPort and RESTPort stand in place of GRPC and HTTP.
	GRPCPort, RESTPort int
	// RESTTimeoutMillis is how long a REST call may take, which is its deadline. Default 30 s.
	RESTTimeoutMillis int
	// CORS lets pages of any origin read REST answers.
	CORS bool
	// GRPCSocket is the path of a unix socket on which gRPC is served, too, in plain text: its folder's
	// permissions say who reaches it. Empty: none is.
	GRPCSocket string
	// WarmUpIterations is how often each recorded request is replayed before a version is AVAILABLE. Default 1.
	WarmUpIterations int
	// ModelName and ModelBasePath are one model that is served, and where its versions lie.
	ModelName, ModelBasePath string
	// FilePoll is PollInterval in seconds; 0: base paths are looked at once.
	FilePoll int
	// LoadThreads is how many versions are loaded at once; 0: as many as LoadBytes lets.
	LoadThreads int
	// LoadRetries is how often a version that could not be loaded is tried again by itself, after
	// LoadRetryMicros each. Default 5 and a minute by flags, else none.
	LoadRetries     int
	LoadRetryMicros int64
	// PlatformConfigFile is a PlatformConfigMap in text form, in place of the flags of batching and warm-up.
	PlatformConfigFile string

	idle       []string // flags that were given and do nothing
	alone      bool     // no supervisor, no log
	lookOnce   bool     // at base paths
	registered bool     // by Register: what is zero now is meant
}

// Register binds the fields to flags of the same names, and sets the defaults. Flags may be
// spelt as TensorFlow Serving's are, with underscores.
func (c *Config) Register(fs *pflag.FlagSet) {
	*c = c.withDefaults()
	c.registered = true
	c.LoadRetries, c.LoadRetryMicros = 5, int64(time.Minute/time.Microsecond)
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	fs.StringVar(&c.Container, "container", c.Container, "container `id` of the supervisor this server belongs to; empty: it belongs to none, and needs no NATS")
	fs.StringVar(&c.GRPC, "grpc", c.GRPC, "listen `address` of TensorFlow Serving's gRPC API")
	fs.StringVar(&c.HTTP, "http", c.HTTP, "listen `address` of TensorFlow Serving's REST API")
	fs.StringVar(&c.Rows, "rows", c.Rows, "listen `address` of the row protocol, host:port or unix:///path")
	fs.BoolVar(&c.InsecureRows, "insecure-rows", c.InsecureRows, "serve rows beyond this machine, though without --rows-tls-cert they are neither encrypted nor authenticated")
	c.GRPCTLS.RegisterPort(fs, "grpc-tls", "the gRPC port, which beyond this machine needs authorities as well")
	c.RESTTLS.RegisterPort(fs, "rest-tls", "the REST port")
	fs.BoolVar(&c.InsecureGRPC, "insecure-grpc", c.InsecureGRPC, "serve gRPC in plain text, beyond this machine, too, though whoever reaches it may unload every model and read any folder")
	fs.BoolVar(&c.InsecureREST, "insecure-rest", c.InsecureREST, "serve REST in plain text, beyond this machine, too")
	fs.StringVar(&c.BaseDir, "base-dir", c.BaseDir, "`folder` in which relative base paths start")
	fs.StringVar(&c.ModelConfigFile, "model-config-file", c.ModelConfigFile, "`file` with a ModelServerConfig in text form: what is served, until another configuration is sent")
	fs.IntVar(&c.ModelConfigPoll, "model-config-file-poll-wait-seconds", c.ModelConfigPoll, "`seconds` between two looks at --model-config-file; 0: it is read at the start alone")
	fs.BoolVar(&c.AllowPendingLabels, "allow-version-labels-for-unavailable-models", c.AllowPendingLabels, "take version labels of versions that are not AVAILABLE yet from a reload too: they bind when the version is")
	fs.StringVar(&c.MonitoringConfigFile, "monitoring-config-file", c.MonitoringConfigFile, "`file` with a MonitoringConfig in text form: whether and where the REST port shows TensorFlow Serving's Prometheus metrics")
	fs.BoolVar(&c.EnableBatching, "enable-batching", c.EnableBatching, "compute requests that come at once together")
	fs.StringVar(&c.BatchingParametersFile, "batching-parameters-file", c.BatchingParametersFile, "`file` with BatchingParameters in text form, for --enable-batching")
	fs.StringVar(&c.SSLConfigFile, "ssl-config-file", c.SSLConfigFile, "`file` with an SSLConfig in text form: the certificate of the gRPC port, and whether its clients must show theirs")
	fs.BoolVar(&c.EnableModelWarmUp, "enable-model-warmup", c.EnableModelWarmUp, "replay assets.extra/tf_serving_warmup_requests of a version before it is AVAILABLE")
	fs.DurationVar(&c.WarmUpWait, "warm-up-wait", cmp.Or(c.WarmUpWait, 10*time.Second), "how long warm-up waits for rows of the version that no shard has yet; behind that the rest is left out")
	fs.BoolVar(&c.Frozen, "frozen", c.Frozen, "serve exports as they are and follow no deltas")
	fs.StringVar(&c.OfModel, "of-model", c.OfModel, "`model` whose sub-models are meant by the names entry and ps_<n>, as the original's agents write them; empty: models of these names")
	fs.StringSliceVar(&c.Brokers, "kafka", c.Brokers, "Kafka `brokers` for impressions; none: no impressions")
	c.Access.Register(fs)
	fs.StringVar(&c.PredictionsTopic, "predictions-topic", c.PredictionsTopic, "Kafka `topic` of impressions; empty: predictions, and <bzid>.predictions outside of the namespace demo")
	fs.Float64Var(&c.SampleRate, "sample-rate", c.SampleRate, "share of requests that leave impressions without asking for them by x-impression; 0: none")
	fs.IntVar(&c.MaxBatch, "max-batch", c.MaxBatch, "most rows of one Predict")
	fs.DurationVar(&c.LookupTimeout, "lookup-timeout", c.LookupTimeout, "time one replica has to answer a lookup")
	fs.IntVar(&c.LookupRetries, "lookup-retries", c.LookupRetries, "further replicas asked after a failed lookup")
	fs.Int64Var(&c.LoadBytes, "load-bytes", c.LoadBytes, "`bytes` of export files that are read at once")
	fs.Int64Var(&c.LoadRate, "load-rate", c.LoadRate, "`bytes` of export files that all loads together read in a second; 0: as fast as they come")
	fs.DurationVar(&c.LoadTurn, "load-turn", c.LoadTurn, "longest `time` that a replica of a shard waits for one before it in the plan to have the next version; 0: it does not wait")
	fs.DurationVar(&c.PollInterval, "poll-interval", c.PollInterval, "time between two looks at the base paths")
	fs.DurationVar(&c.Linger, "linger", c.Linger, "time a replaced version's rows go on answering after the last entry asked for them")
	fs.DurationVar(&c.SignalInterval, "signal-interval", c.SignalInterval, "time between two signals of applied deltas")
	fs.StringVar(&c.SnapshotDir, "snapshot-dir", c.SnapshotDir, "`folder` of view snapshots; empty: none")
	fs.DurationVar(&c.Drain, "drain", c.Drain, "time requests in flight have at a stop")
	c.registerDropIn(fs)
}

func (c Config) withDefaults() Config {
	c.GRPC, c.HTTP, c.Rows = cmp.Or(c.GRPC, freeLoopback), cmp.Or(c.HTTP, freeLoopback), cmp.Or(c.Rows, freeLoopback)
	c.MaxBatch = cmp.Or(c.MaxBatch, 4096)
	c.WarmUpIterations = cmp.Or(c.WarmUpIterations, 1)
	c.RESTTimeoutMillis = cmp.Or(c.RESTTimeoutMillis, 30_000)
	c.ModelName = cmp.Or(c.ModelName, standardModel)
	c.LookupTimeout = cmp.Or(c.LookupTimeout, 200*time.Millisecond)
	c.LoadBytes = cmp.Or(c.LoadBytes, 256<<20)
	c.PollInterval = cmp.Or(c.PollInterval, time.Second)
	c.SignalInterval = cmp.Or(c.SignalInterval, 200*time.Millisecond)
	c.Drain = cmp.Or(c.Drain, 5*time.Second)
	if !c.registered {
		c.EnableModelWarmUp = true
		c.SampleRate = cmp.Or(c.SampleRate, 0.01)
		c.LookupRetries = cmp.Or(c.LookupRetries, 2)
		c.Linger = cmp.Or(c.Linger, 5*time.Second)
		c.LoadTurn = cmp.Or(c.LoadTurn, 5*time.Minute)
	}
	return c
}

// Validate joins every complaint.
func (c *Config) Validate() error {
	var errs []error
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf("modelserver: "+format, args...)) }
	c.validateDropIn(complain)
	for flag, addr := range map[string]string{"--grpc": c.GRPC, "--http": c.HTTP} {
		if _, _, err := net.SplitHostPort(addr); addr != "" && err != nil {
			complain("%s %q is not host:port: %w", flag, addr, err)
		}
	}
	if c.Rows != "" {
		if _, _, err := rowwire.SplitAddr(c.Rows); err != nil {
			complain("--rows: %w", err)
		}
	}
	if c.ModelConfigPoll < 0 {
		complain("--model-config-file-poll-wait-seconds is %d, want 0 or more", c.ModelConfigPoll)
	}
	if c.BatchingParametersFile != "" && !c.EnableBatching {
		complain("--batching-parameters-file is given without --enable-batching; give both, or none")
	}
	if c.SampleRate > 1 {
		complain("--sample-rate is %v, at most 1 makes sense", c.SampleRate)
	}
	if c.MaxBatch < 0 || c.MaxBatch > entry.MaxBatch {
		complain("--max-batch is %d, want 1 to %d", c.MaxBatch, entry.MaxBatch)
	}
	if c.LoadBytes < 0 {
		complain("--load-bytes is %d, want a positive number", c.LoadBytes)
	}
	if c.LoadRate < 0 {
		complain("--load-rate is %d, want a positive number, or 0 for none", c.LoadRate)
	}
	if c.LookupRetries < 0 || c.LookupRetries > rows.MaxRetries {
		complain("--lookup-retries is %d, want 0 to %d", c.LookupRetries, rows.MaxRetries)
	}
	for flag, d := range map[string]time.Duration{"--lookup-timeout": c.LookupTimeout, "--poll-interval": c.PollInterval, "--linger": c.Linger,
		"--signal-interval": c.SignalInterval, "--drain": c.Drain, "--warm-up-wait": c.WarmUpWait} {
		if d < 0 {
			complain("%s is %v, want a positive duration", flag, d)
		}
	}
	return errors.Join(errs...)
}
