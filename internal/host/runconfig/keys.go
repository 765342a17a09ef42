package runconfig

import (
	"path"
	"strconv"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
)

// kind is how a key's value is written.
type kind int

const (
	text kind = iota
	whole
	real
	truth
	mapping // an object, of which nothing steers anything here
)

// key is a field of the original's RunConfig or RunnerConfig (facts I.2 and appendix 4), or an argument
// of its Estimator.
type key struct {
	name  string
	kind  kind
	value string // by default: RunConfig's where both have the field; "": None
	flags []flag // that it sets: each that the command has
	idle  string // why it does nothing here; "": it steers flags, or is read by Apply or discovery
	no    string // why another value than the default is refused, with what to do instead
}

// flag is one of ours, and how a key's value is written for it.
type flag struct {
	name string
	as   func(string) string // nil: as it is
}

// Why keys do nothing.
const (
	ofTensorFlow = "it steers TensorFlow's runtime, of which nothing runs here"
	ofModel      = "the model's declaration says it: --spec"
	ofShards     = "a lost shard or trainer is started again, and goes on by itself"
	ofDeltas     = "shards publish what changed from their start on: ps --sync-interval"
	ofTime       = "figures are facts, told by the clock"
	ofCut        = "a checkpoint is one cut of rows and dense variables together"
	ofLeases     = "partitions are shared by leases among the trainers that there are"
	ofServing    = "model servers are told by their own flags"
	ofReading    = "fetches run ahead of learning within a bound of their own"
	notAttached  = "the original attaches it to nothing either"
)

// keys are all that there are, by what they are about.
var keys = concat(steering, discovering, waiting, restoring, reading, idle)

var steering = []key{
	{name: "model_name", flags: set("model")},
	{name: "deep_insight_name", flags: set("job")},
	{name: "model_dir", flags: set("dir")},
	{name: "bzid", flags: set("bzid")},
	{name: "num_ps", kind: whole, value: "0", flags: []flag{{"shards", atLeastOne}}},
	{name: "num_workers", kind: whole, value: "1", flags: []flag{{"trainers", atLeastOne}}},
	{name: "index", kind: whole, value: "0", flags: []flag{{name: "index"}, {name: "shard"}, {"name", trainerName}}},
	{name: "enable_sync_training", kind: truth, value: "false", flags: set("deterministic")},
	{name: "save_checkpoints_secs", kind: whole, flags: []flag{{"checkpoint-interval", seconds}, {"checkpoint-every", seconds}}},
	{name: "save_checkpoints_steps", kind: whole, flags: []flag{{name: "checkpoint-steps"}, {"checkpoint-interval", unclocked}, {"checkpoint-every", unclocked}}},
	{name: "checkpoints_max_to_keep", kind: whole, value: "10", flags: set("keep-checkpoints")},
	{name: "train.steps", kind: whole, flags: set("steps")},
	{name: "train.max_steps", kind: whole, flags: set("max-steps")},
	{name: "eval.steps", kind: whole, flags: set("steps")},
	{name: "mode", value: "train"}, // Apply holds it against the command
	{name: "enable_parameter_sync", kind: truth, value: "false", idle: ofDeltas},
	{name: "enable_realtime_training", kind: truth, value: "false", idle: ofDeltas},
	{name: "embedding_prefetch_capacity", kind: whole, value: "0", flags: []flag{{"pipeline", ahead}}},
	{name: "kafka_servers", flags: set("kafka")},
	{name: "kafka_topics", flags: set("topic")},
	{name: "kafka_group_id", flags: set("offsets-group")},
}

// discovering are read by the package discovery.
var discovering = []key{
	{name: "is_local", kind: truth, value: "false"},
	{name: "discovery_type"},
	{name: "tf_config"},
	{name: "zk_server"},
	{name: "uuid"},
	{name: "server_type", value: "worker"},
	{name: "zk_watch_address_family", value: "ipv4", idle: "an address is registered as it is advertised"},
	{name: "task", idle: "the command says which role runs"},
}

var waiting = []key{
	{name: "max_retry_times", kind: whole, value: "6", flags: set("max-restarts")},
	{name: "retry_wait_in_secs", kind: whole, value: "5", flags: []flag{{"restart-wait", seconds}}},
	{name: "restore_sync_timeout_secs", kind: whole, flags: []flag{{"restore-timeout", seconds}}},
	{name: "restore_sync_poll_interval_ms", kind: whole, idle: "nobody polls: the restored checkpoint is a fact, which wakes who waits"},
	{name: "chief_timeout_secs", kind: whole, value: "1800", idle: ofShards},
	{name: "session_creation_timeout_secs", kind: whole, value: "7200", idle: ofTensorFlow},
	{name: "operation_timeout_in_ms", kind: whole, value: "-1", idle: ofTensorFlow},
	{name: "max_rpc_deadline_millis", kind: whole, value: "30000", idle: "calls of the row protocol have deadlines of their own"},
	{name: "max_slow_start_wait_minute", kind: whole, value: "10", idle: "trainers begin at once: each takes the partitions that are free"},
	{name: "partial_recovery", kind: truth, value: "false", idle: ofShards},
	{name: "force_shutdown_ps", kind: truth, value: "false", idle: "shards end with their job's command, or when they are told to"},
	{name: "num_extra_ps", kind: whole, value: "0", idle: ofShards},
	{name: "num_redundant_ps", kind: whole, value: "0", idle: ofShards},
}

var restoring = []key{
	{name: "restore_dir", flags: set("restore-dir")},
	{name: "restore_ckpt", flags: []flag{{"restore-ckpt", path.Base}, {"checkpoint", number}}},
	{name: "clear_nn", kind: truth, value: "false", no: "dense variables of a checkpoint are taken over or the job begins untrained: leave restore_dir out"},
	{name: "continue_training", kind: truth, value: "false", idle: "optimizers go on from the checkpoint's global step: --restore-optimizer"},
	{name: "reload_alias_map", kind: mapping, no: "layers keep the names that the model's declaration gives them: rename them by checkpoint import --variable"},
	{name: "enable_alias_map_auto_gen", kind: truth, no: "layers keep the names that the model's declaration gives them: rename them by checkpoint import --variable"},
}

// reading are of the records; formatOf joins those of how they are written.
var reading = []key{
	{name: "input_path", flags: set("files")},
	{name: "data_type"},
	{name: "lagrangex_header", kind: truth, value: "false"},
	{name: "sort_id", kind: truth, value: "true"},
	{name: "kafka_dump", kind: truth, value: "false"},
	{name: "kafka_dump_prefix", kind: truth, value: "false"},
	{name: "wildcard", no: "write it into input_path"},
	{name: "is_hourly", kind: truth, value: "false", no: "name the hours in input_path: {DATE(2026010100,2026010123)}"},
	{name: "start_date", no: "name the days in input_path: {DATE(20260101,20260131)}"},
	{name: "end_date", no: "name the days in input_path: {DATE(20260101,20260131)}"},
	{name: "start_hour", kind: whole, no: "name the hours in input_path: {DATE(2026010100,2026010123)}"},
	{name: "end_hour", kind: whole, no: "name the hours in input_path: {DATE(2026010100,2026010123)}"},
	{name: "feature_list", idle: ofModel},
	{name: "fountain_zk_host", no: "Fountain is not read: name files or a topic"},
	{name: "fountain_model_name", no: "Fountain is not read: name files or a topic"},
	{name: "use_dataservice", kind: truth, idle: ofReading},
	{name: "num_extra_dsworker_on_gpu_worker", kind: whole, value: "0", idle: ofReading},
	{name: "enable_dynamic_sharding", kind: truth, value: "false", idle: ofLeases},
	{name: "max_task_num_per_worker", kind: whole, value: "1", idle: ofLeases},
	{name: "reorder_fids_in_data_pipeline", kind: truth, value: "false", idle: ofReading},
	{name: "enable_fid_dedup", kind: truth, value: "false", idle: "a batch looks each id up once in any case"},
	{name: "only_feature_engineering", kind: truth, value: "false", no: "a command that learns writes no features: take it away"},
	{name: "enable_partial_sync_training", kind: truth, value: "false", no: "workers are not half in step: enable_sync_training has all take turns"},
	{name: "params_override", no: "change the model's declaration: --spec"},
}

func set(name string) []flag { return []flag{{name: name}} }

func atLeastOne(v string) string {
	if v == "0" {
		return "1" // without servers of its own, the original's one worker holds the tables
	}
	return v
}

func seconds(v string) string     { return v + "s" }
func unclocked(string) string     { return "0s" } // steps in place of seconds
func trainerName(v string) string { return "trainer-" + v }

// ahead is how many steps ahead rows are looked up: one at most here.
func ahead(v string) string {
	if n, err := strconv.Atoi(v); err == nil && n > 1 {
		return "1"
	}
	return v
}

// number is the number of a checkpoint of ours by its path or name.
func number(v string) string {
	if id, ok := checkpoint.ID(path.Base(v)); ok {
		return strconv.FormatInt(id, 10)
	}
	return path.Base(v)
}

func concat(groups ...[]key) (all []key) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
