package agentconf

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/compat/layoutfilter"
)

// Serving are TensorFlow Serving's own options. Their order is that in which they stand in a
// command line.
type Serving struct {
	EnableBatching                         bool    `conf:"enable_batching"`
	AllowVersionLabelsForUnavailableModels bool    `conf:"allow_version_labels_for_unavailable_models"`
	BatchingParametersFile                 string  `conf:"batching_parameters_file"`
	NumLoadThreads                         int     `conf:"num_load_threads"`
	NumUnloadThreads                       int     `conf:"num_unload_threads"`
	MaxNumLoadRetries                      int     `conf:"max_num_load_retries"`
	LoadRetryIntervalMicros                int     `conf:"load_retry_interval_micros"`
	FileSystemPollWaitSeconds              int     `conf:"file_system_poll_wait_seconds"`
	FlushFilesystemCaches                  bool    `conf:"flush_filesystem_caches"`
	TensorflowSessionParallelism           int     `conf:"tensorflow_session_parallelism"`
	TensorflowIntraOpParallelism           int     `conf:"tensorflow_intra_op_parallelism"`
	TensorflowInterOpParallelism           int     `conf:"tensorflow_inter_op_parallelism"`
	SSLConfigFile                          string  `conf:"ssl_config_file"`
	PlatformConfigFile                     string  `conf:"platform_config_file"`
	PerProcessGPUMemoryFraction            float64 `conf:"per_process_gpu_memory_fraction"`
	AllowGrowth                            bool    `conf:"allow_growth"`
	SavedModelTags                         string  `conf:"saved_model_tags"`
	GRPCChannelArguments                   string  `conf:"grpc_channel_arguments"`
	GRPCMaxThreads                         int     `conf:"grpc_max_threads"`
	EnableModelWarmup                      bool    `conf:"enable_model_warmup"`
	Version                                string  `conf:"version"`
	RemoveUnusedFieldsFromBundleMetagraph  bool    `conf:"remove_unused_fields_from_bundle_metagraph"`
	EnableSignatureMethodNameCheck         bool    `conf:"enable_signature_method_name_check"`
	XLACPUCompilationEnabled               bool    `conf:"xla_cpu_compilation_enabled"`
	EnableProfiler                         bool    `conf:"enable_profiler"`
}

// Config is an agent.conf. Text that the file leaves out or calls none is "", a port or number
// that it leaves out is 0.
type Config struct {
	Serving
	BZID                       string   `conf:"bzid"`
	BaseName                   string   `conf:"base_name"`
	BasePath                   string   `conf:"base_path"`
	NumPS                      int      `conf:"num_ps"`
	NumShard                   int      `conf:"num_shard"`
	DeployType                 string   `conf:"deploy_type"`
	ReplicaID                  int      `conf:"replica_id"`
	StandAloneServing          bool     `conf:"stand_alone_serving"`
	ZKServers                  string   `conf:"zk_servers"`
	ProxyPort                  int      `conf:"proxy_port"`
	TFSEntryPort               int      `conf:"tfs_entry_port"`
	TFSEntryHTTPPort           int      `conf:"tfs_entry_http_port"`
	TFSEntryArchonPort         int      `conf:"tfs_entry_archon_port"`
	TFSPSPort                  int      `conf:"tfs_ps_port"`
	TFSPSHTTPPort              int      `conf:"tfs_ps_http_port"`
	TFSPSArchonPort            int      `conf:"tfs_ps_archon_port"`
	DenseAlone                 bool     `conf:"dense_alone"`
	DenseServiceNum            int      `conf:"dense_service_num"`
	TFSDensePort               int      `conf:"tfs_dense_port"`
	TFSDenseHTTPPort           int      `conf:"tfs_dense_http_port"`
	TFSDenseArchonPort         int      `conf:"tfs_dense_archon_port"`
	AgentPort                  int      `conf:"agent_port"`
	UpdateModelStatusInterval  int      `conf:"update_model_status_interval"`
	ModelConfigFile            string   // no key sets it
	AgentVersion               int      `conf:"agent_version"`
	MaxWaitingSec              int      `conf:"max_waiting_sec"`
	PreloadJemalloc            bool     `conf:"preload_jemalloc"`
	VersionPolicy              string   `conf:"version_policy"`
	VersionData                int      `conf:"version_data"`
	FetchPSTimeoutMS           int      `conf:"fetch_ps_timeout_ms"`
	FetchPSLongConnNum         int      `conf:"fetch_ps_long_conn_num"`
	FetchPSLongConnEnable      bool     `conf:"fetch_ps_long_conn_enable"`
	FetchPSRetry               int      `conf:"fetch_ps_retry"`
	AIOThreadNum               int      `conf:"aio_thread_num"`
	FileSystemPollWaitPS       int      `conf:"file_system_poll_wait_seconds_ps"`
	RoughSortModelName         string   `conf:"rough_sort_model_name"`
	RoughSortModelLocalPath    string   `conf:"rough_sort_model_local_path"`
	RoughSortModelLoadedServer string   `conf:"rough_sort_model_loaded_server"`
	RoughSortModelP2PPath      string   `conf:"rough_sort_model_p2p_path"`
	RoughSortConstrained       bool     `conf:"rough_sort_resource_constrained"`
	DCAware                    bool     `conf:"dc_aware"`
	LayoutPattern              string   `conf:"layout_pattern"`
	LayoutFilters              []string `conf:"layout_filters"`
	TFSPortArchon              int      `conf:"tfs_port_archon"`
	TFSPortGRPC                int      `conf:"tfs_port_grpc"`
	TFSPortHTTP                int      `conf:"tfs_port_http"`
	UseMetrics                 bool     `conf:"use_metrics"`

	// Unknown are the keys of the file that mean nothing, sorted.
	Unknown []string
}

// defaultServing is what TensorFlow Serving does by itself, so that no flag need say it.
func defaultServing() Serving {
	return Serving{
		MaxNumLoadRetries: 5, LoadRetryIntervalMicros: 60 * 1000 * 1000, FileSystemPollWaitSeconds: 1, FlushFilesystemCaches: true,
		AllowGrowth: true, EnableModelWarmup: true, RemoveUnusedFieldsFromBundleMetagraph: true, EnableProfiler: true,
	}
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Serving: defaultServing(), NumPS: 1, DenseServiceNum: 3, UpdateModelStatusInterval: 1, AgentVersion: 1, MaxWaitingSec: 1200,
		PreloadJemalloc: true, VersionPolicy: "latest", VersionData: 1, FetchPSTimeoutMS: 200, FetchPSLongConnNum: 100,
		FetchPSLongConnEnable: true, FetchPSRetry: 2, AIOThreadNum: 30, RoughSortModelLoadedServer: "entry", UseMetrics: true,
	}
}

// Read reads a file; no path is no configuration. The first of repeated keys counts, but
// layout_filters are all of them.
func Read(path string) (Config, error) {
	c := Default()
	if path == "" {
		return c, nil
	}
	said := values{}
	if err := readFile(path, said, 0); err != nil {
		return c, err
	}
	return c, c.take(said)
}

// take fills c from what a file says, and joins every complaint.
func (c *Config) take(said values) error {
	if _, ok := said["deploy_type"]; !ok {
		if legacy, ok := said["server_type"]; ok {
			said["deploy_type"] = legacy
		}
	}
	delete(said, "server_type")
	fields := map[string]reflect.Value{}
	collect(reflect.ValueOf(c).Elem(), func(key string, v reflect.Value) { fields[key] = v })
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(said)) {
		field, known := fields[key]
		if !known {
			c.Unknown = append(c.Unknown, key)
			continue
		}
		if err := set(field, said[key]); err != nil {
			errs = append(errs, fmt.Errorf("agent.conf: %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// collect calls f with each key of a configuration and its field, in their order.
func collect(v reflect.Value, f func(key string, field reflect.Value)) {
	for i := range v.NumField() {
		switch key := v.Type().Field(i).Tag.Get("conf"); {
		case v.Type().Field(i).Anonymous:
			collect(v.Field(i), f)
		case key != "":
			f(key, v.Field(i))
		}
	}
}

// set gives a field its value by the original's rules: any text but a word for no is true,
// numbers may be computed, none is nothing.
func set(field reflect.Value, said []string) error {
	text := said[0]
	none := strings.EqualFold(text, "none")
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(!slices.Contains([]string{"false", "n", "f", "no", "0", "none"}, strings.ToLower(text)))
	case reflect.Int:
		n := int64(0)
		if !none {
			var err error
			if n, err = layoutfilter.Integer(text); err != nil {
				return fmt.Errorf("%q is no number: %w", text, err)
			}
		}
		field.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !none {
			n, whole := layoutfilter.Integer(text)
			if whole != nil {
				return fmt.Errorf("%q is no number", text)
			}
			f = float64(n)
		}
		field.SetFloat(f)
	case reflect.Slice:
		field.Set(reflect.ValueOf(said))
	default:
		if none {
			text = ""
		}
		field.SetString(text)
	}
	return nil
}
