package modelserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// A flag of zero is meant; a field that nobody has set takes its default.
func TestZeroByFlagIsMeant(t *testing.T) {
	for flag, want := range map[string]time.Duration{"": 5 * time.Second, "--linger=0": 0} {
		var c Config
		fs := pflag.NewFlagSet("modelserver", pflag.ContinueOnError)
		c.Register(fs)
		if err := fs.Parse([]string{flag}); err != nil {
			t.Fatal(err)
		}
		if got := c.withDefaults().Linger; got != want {
			t.Errorf("%q: %v, want %v", flag, got, want)
		}
	}
	if got := (Config{}).withDefaults().Linger; got != 5*time.Second {
		t.Errorf("in code: %v", got)
	}
}

// Flags that TensorFlow Serving has too may be spelt as there.
func TestFlagsOfTensorFlowServing(t *testing.T) {
	var c Config
	fs := pflag.NewFlagSet("modelserver", pflag.ContinueOnError)
	c.Register(fs)
	if err := fs.Parse([]string{"--model_config_file=f", "--model_config_file_poll_wait_seconds=7", "--allow_version_labels_for_unavailable_models",
		"--monitoring_config_file=m", "--enable_batching", "--batching_parameters_file=b", "--ssl_config_file=s", "--enable_model_warmup=false",
		"--rest_api_timeout_in_ms=9", "--enable_cors_support", "--grpc_socket_path=g", "--num_request_iterations_for_warmup=5"}); err != nil {
		t.Fatal(err)
	}
	if c.ModelConfigFile != "f" || c.ModelConfigPoll != 7 || !c.AllowPendingLabels ||
		c.MonitoringConfigFile != "m" || !c.EnableBatching || c.BatchingParametersFile != "b" || c.SSLConfigFile != "s" || c.withDefaults().EnableModelWarmUp ||
		c.RESTTimeoutMillis != 9 || !c.CORS || c.GRPCSocket != "g" || c.WarmUpIterations != 5 {
		t.Errorf("%+v", c)
	}
}

func TestDefaultsAreOnlyForWhatIsNotSaid(t *testing.T) {
	want := Config{Container: "c", GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Rows: "127.0.0.1:0", SampleRate: 0.01, MaxBatch: 4096,
		LookupTimeout: 200 * time.Millisecond, LookupRetries: 2, LoadBytes: 256 << 20, PollInterval: time.Second, Linger: 5 * time.Second, LoadTurn: 5 * time.Minute,
		SignalInterval: 200 * time.Millisecond, Drain: 5 * time.Second, EnableModelWarmUp: true, RESTTimeoutMillis: 30_000, WarmUpIterations: 1, ModelName: "default"}
	got := Config{Container: "c"}.withDefaults()
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("defaults\n%+v, want\n%+v", got, want)
	}
	own := Config{Container: "c", GRPC: "h:1", HTTP: "h:2", Rows: "unix:///x", SampleRate: -1, MaxBatch: 1, LookupTimeout: 1, LookupRetries: 1,
		LoadBytes: 1, PollInterval: 2, Linger: 3, LoadTurn: 1, SignalInterval: 4, Drain: 5, EnableModelWarmUp: true, RESTTimeoutMillis: 6, WarmUpIterations: 7, ModelName: "m"}
	kept := own.withDefaults()
	if fmt.Sprintf("%+v", kept) != fmt.Sprintf("%+v", own) {
		t.Errorf("one's own became\n%+v, want\n%+v", kept, own)
	}
	for name, tc := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"every sample":     {func(c *Config) { c.SampleRate = 1 }, true},
		"more than every":  {func(c *Config) { c.SampleRate = 1.01 }, false},
		"the largest":      {func(c *Config) { c.MaxBatch = 1 << 16 }, true},
		"beyond":           {func(c *Config) { c.MaxBatch = 1<<16 + 1 }, false},
		"no bytes":         {func(c *Config) { c.LoadBytes = -1 }, false},
		"a negative rate":  {func(c *Config) { c.LoadRate = -1 }, false},
		"most retries":     {func(c *Config) { c.LookupRetries = rows.MaxRetries }, true},
		"more retries":     {func(c *Config) { c.LookupRetries = rows.MaxRetries + 1 }, false},
		"fewer than none":  {func(c *Config) { c.LookupRetries = -1 }, false},
		"a negative drain": {func(c *Config) { c.Drain = -1 }, false},
		"polled backwards": {func(c *Config) { c.ModelConfigPoll = -1 }, false},
		"no http port":     {func(c *Config) { c.HTTP = "host" }, false},
	} {
		c := want
		tc.change(&c)
		if err := c.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Config{Container: "c"}
	if err := good.Validate(); err != nil {
		t.Errorf("the zero value with a container: %v", err)
	}
	good = good.withDefaults()
	if err := good.Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for name, change := range map[string]func(*Config){
		"no container": func(c *Config) { c.Container = "" },
		"grpc":         func(c *Config) { c.GRPC = "nowhere" },
		"rows":         func(c *Config) { c.Rows = "unix://relative" },
		"rate":         func(c *Config) { c.SampleRate = 2 },
		"batch":        func(c *Config) { c.MaxBatch = -1 },
		"retries":      func(c *Config) { c.LookupRetries = 99 },
		"timeout":      func(c *Config) { c.LookupTimeout = -1 },
	} {
		c := good
		change(&c)
		if c.Validate() == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// What TensorFlow Serving's flags of ports, folders and loads come to.
func TestDropInFlags(t *testing.T) {
	settled := func(args ...string) Config {
		t.Helper()
		var c Config
		fs := pflag.NewFlagSet("modelserver", pflag.ContinueOnError)
		c.Register(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		c = c.withDefaults()
		c.settle(mtls.Files{})
		return c
	}
	c := settled("--model_base_path=/m")
	if !c.alone || c.Container == "" || c.GRPC != "127.0.0.1:8500" || c.HTTP != freeLoopback || c.lookOnce || c.PollInterval != time.Second || c.ModelName != "default" ||
		c.LoadRetries != 5 || c.LoadRetryMicros != 60_000_000 || len(c.idle) != 0 {
		t.Errorf("a base path alone: %+v", c)
	}
	c = settled("--model_base_path=/m", "--port=1", "--rest_api_port=2", "--insecure-rest", "--file_system_poll_wait_seconds=7", "--num_load_threads=3",
		"--enable_profiler", "--saved_model_tags", "serve", "--enable_profiler=false")
	if c.GRPC != "127.0.0.1:1" || c.HTTP != ":2" || c.PollInterval != 7*time.Second || c.LoadThreads != 3 || fmt.Sprint(c.idle) != "[enable-profiler saved-model-tags]" {
		t.Errorf("%+v", c)
	}
	if c = settled("--model_base_path=/m", "--grpc_tls_cert=c", "--port=0", "--file_system_poll_wait_seconds=0"); c.GRPC != ":0" || !c.lookOnce {
		t.Errorf("%+v", c)
	}
	if c = settled("--container=c"); c.alone || c.GRPC != freeLoopback || c.lookOnce {
		t.Errorf("of a supervisor: %+v", c)
	}
}
