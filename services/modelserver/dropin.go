package modelserver

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

const (
	standardPort  = 8500      // TensorFlow Serving's for gRPC
	standardModel = "default" // its name for a model that has none
	freeLoopback  = "127.0.0.1:0"
	notGiven      = -1 // a port
	// maxWarmUpIterations bounds a minute's work, after which warm-up ends anyway.
	maxWarmUpIterations = 1000
)

// Flags of TensorFlow Serving that mean nothing here: they steer TensorFlow's own runtime, or that
// server's threads and caches.
var (
	idleSwitches = []string{"enable-grpc-healthcheck-service", "enable-profiler", "enable-signature-method-name-check", "flush-filesystem-caches",
		"prefer-tflite-model", "remove-unused-fields-from-bundle-metagraph", "skip-initialize-tpu", "use-tflite-model", "xla-cpu-compilation-enabled"}
	idleValues = []string{"grpc-channel-arguments", "grpc-max-threads", "mixed-precision", "num-tflite-interpreters", "num-tflite-interpreters-per-pool",
		"num-tflite-pools", "num-unload-threads", "per-process-gpu-memory-fraction", "rest-api-num-threads", "saved-model-tags", "tensorflow-inter-op-parallelism",
		"tensorflow-intra-op-parallelism", "tensorflow-session-config-file", "tensorflow-session-parallelism", "thread-pool-factory-config-file"}
)

// idle is a flag that is taken and does nothing.
type idle struct {
	name  string
	given *[]string // the names of such flags
	kind  string
}

func (f idle) Set(string) error {
	if !slices.Contains(*f.given, f.name) {
		*f.given = append(*f.given, f.name)
	}
	return nil
}

func (f idle) String() string { return "" }
func (f idle) Type() string   { return f.kind }

// registerDropIn binds the flags by which TensorFlow Serving is told of one model, its ports and its
// loads, and those that do nothing.
func (c *Config) registerDropIn(fs *pflag.FlagSet) {
	fs.IntVar(&c.GRPCPort, "port", notGiven, "`port` of the gRPC API, in place of --grpc: on all addresses where TLS or --insecure-grpc protects or opens it, else on this machine alone (a server by itself: 8500)")
	fs.IntVar(&c.RESTPort, "rest-api-port", notGiven, "`port` of the REST API, in place of --http, likewise")
	fs.BoolVar(&c.CORS, "enable-cors-support", c.CORS, "let web pages of any origin read REST answers")
	fs.StringVar(&c.GRPCSocket, "grpc-socket-path", c.GRPCSocket, "`path` of a unix socket on which gRPC is served, too, in plain text: put it into a folder that only its callers may enter")
	fs.IntVar(&c.WarmUpIterations, "num-request-iterations-for-warmup", c.WarmUpIterations, "how often each recorded request is replayed before a version is AVAILABLE; 0: once")
	fs.IntVar(&c.RESTTimeoutMillis, "rest-api-timeout-in-ms", c.RESTTimeoutMillis, "`milliseconds` that a REST call may take: one that would take longer is refused at once")
	fs.StringVar(&c.ModelName, "model-name", c.ModelName, "`name` of the model in --model-base-path")
	fs.StringVar(&c.ModelBasePath, "model-base-path", "", "`folder` of a model's versions, such as exported_models/entry; not looked at where --model-config-file is given")
	fs.IntVar(&c.FilePoll, "file-system-poll-wait-seconds", notGiven, "`seconds` between two looks at the base paths, in place of --poll-interval; 0: each is looked at when it is configured")
	fs.IntVar(&c.LoadThreads, "num-load-threads", c.LoadThreads, "most versions that are loaded at once; 0: as many as --load-bytes lets")
	fs.IntVar(&c.LoadRetries, "max-num-load-retries", c.LoadRetries, "how often a version that could not be loaded is tried again by itself")
	fs.Int64Var(&c.LoadRetryMicros, "load-retry-interval-micros", c.LoadRetryMicros, "`microseconds` between two tries")
	fs.StringVar(&c.PlatformConfigFile, "platform-config-file", "", "`file` with a PlatformConfigMap in text form: batching and warm-up, in place of their own flags")
	const usage = "does nothing here: taken for TensorFlow Serving's sake"
	for _, name := range idleSwitches {
		fs.VarPF(idle{name, &c.idle, "bool"}, name, "", usage).NoOptDefVal = "true"
	}
	for _, name := range idleValues {
		fs.Var(idle{name, &c.idle, "value"}, name, usage)
	}
}

// Alone says that the server belongs to no supervisor: it serves what lies in folders, and needs no log.
func (c *Config) Alone() bool { return c.Container == "" }

// validateDropIn complains about what registerDropIn binds.
func (c *Config) validateDropIn(complain func(format string, args ...any)) {
	if c.Alone() && c.ModelConfigFile == "" && c.ModelBasePath == "" {
		complain("--container is empty; name the container this server belongs to, or say what it serves by itself with --model-base-path or --model-config-file")
	}
	for _, p := range []struct {
		flag, other, addr string
		port              int
	}{{"--port", "--grpc", c.GRPC, c.GRPCPort}, {"--rest-api-port", "--http", c.HTTP, c.RESTPort}} {
		if p.port < notGiven || p.port > 65535 {
			complain("%s is %d, want 0 to 65535", p.flag, p.port)
		}
		if c.registered && p.port != notGiven && p.addr != freeLoopback {
			complain("%s and %s both say where to listen; give one of them", p.flag, p.other)
		}
	}
	if c.WarmUpIterations < 0 || c.WarmUpIterations > maxWarmUpIterations {
		complain("--num-request-iterations-for-warmup is %d, want 0 to %d", c.WarmUpIterations, maxWarmUpIterations)
	}
	if c.RESTTimeoutMillis < 0 || c.registered && c.RESTTimeoutMillis == 0 {
		complain("--rest-api-timeout-in-ms is %d, want 1 or more", c.RESTTimeoutMillis)
	}
	if c.ModelBasePath != "" && (c.ModelName == "" || len(c.ModelName) > tfserving.MaxName) {
		complain("--model-name needs 1 to %d bytes", tfserving.MaxName)
	}
	if c.FilePoll < notGiven {
		complain("--file-system-poll-wait-seconds is %d, want 0 or more", c.FilePoll)
	}
	if c.LoadThreads < 0 || c.LoadRetries < 0 || c.LoadRetryMicros < 0 {
		complain("--num-load-threads is %d, --max-num-load-retries %d and --load-retry-interval-micros %d; want 0 or more", c.LoadThreads, c.LoadRetries, c.LoadRetryMicros)
	}
}

// restTimeout is how long a REST call may take.
func (c *Config) restTimeout() time.Duration {
	return time.Duration(c.RESTTimeoutMillis) * time.Millisecond
}

// settle replaces flags of TensorFlow Serving by what they mean here.
func (c *Config) settle(shared mtls.Files) {
	if c.Alone() {
		c.alone = true
		c.Container, _ = os.Hostname()
		c.Container = cmp.Or(c.Container, "modelserver")
	}
	if !c.registered {
		return
	}
	if c.GRPCPort == notGiven && c.alone && c.GRPC == freeLoopback {
		c.GRPCPort = standardPort
	}
	if c.GRPCPort != notGiven {
		c.GRPC = listenAt(c.GRPCPort, c.InsecureGRPC || c.SSLConfigFile != "" || c.GRPCTLS.Or(shared) != mtls.Files{})
	}
	if c.RESTPort != notGiven {
		c.HTTP = listenAt(c.RESTPort, c.InsecureREST || c.RESTTLS.Or(shared) != mtls.Files{})
	}
	if c.FilePoll > 0 {
		c.PollInterval = time.Duration(c.FilePoll) * time.Second
	}
	c.lookOnce = c.FilePoll == 0
}

// listenAt is a port on all addresses, or on this machine's own.
func listenAt(port int, everywhere bool) string {
	host := "127.0.0.1"
	if everywhere {
		host = ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// start puts what the flags say is served into force, before the ports answer.
func (s *Server) start(file *configFile) error {
	if len(s.cfg.idle) > 0 {
		s.env.Log.Warn("flags that do nothing here: they steer TensorFlow's own runtime", "flags", strings.Join(s.cfg.idle, ", "))
	}
	for flag, addr := range map[string]string{"insecure-grpc": s.cfg.GRPC, "insecure-rest": s.cfg.HTTP} {
		if s.cfg.alone && mtls.Local(addr) {
			s.env.Log.Info("a port answers this machine alone: certificates, or the flag, open it to others", "address", addr, "flag", flag)
		}
	}
	switch {
	case s.cfg.ModelConfigFile != "":
		if s.cfg.ModelBasePath != "" {
			s.env.Log.Warn("--model-base-path is not looked at: --model-config-file says what is served")
		}
		if err := file.take(); err != nil {
			return fmt.Errorf("modelserver: %w", err)
		}
	case s.cfg.ModelBasePath != "":
		models, err := tfserving.Models(tfserving.Config(tfserving.Model{Name: s.cfg.ModelName, BasePath: s.cfg.ModelBasePath}))
		if err != nil {
			return fmt.Errorf("modelserver: --model-base-path: %w", err)
		}
		s.configure(models)
	}
	return nil
}
