package runconfig

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/process/flags"
)

// command is a flag set with some of each kind of flag that keys steer.
type command struct {
	*pflag.FlagSet
	shards, index, keep            int
	dir, restore, checkpoint, name string
	every                          time.Duration
	deterministic                  bool
	format                         string
	steps, maxSteps                int64
	checkpointSteps                int64
	options                        Options
}

func newCommand(t *testing.T, args ...string) *command {
	t.Helper()
	c := &command{FlagSet: pflag.NewFlagSet("test", pflag.ContinueOnError)}
	c.options.Register(c.FlagSet)
	c.IntVar(&c.shards, "shards", 3, "")
	c.IntVar(&c.index, "index", 0, "")
	c.IntVar(&c.keep, "keep-checkpoints", 5, "")
	c.StringVar(&c.dir, "dir", "here", "")
	c.StringVar(&c.name, "name", "trainer-0", "")
	c.StringVar(&c.restore, "restore-ckpt", "", "")
	c.StringVar(&c.checkpoint, "checkpoint", "", "")
	c.StringVar(&c.format, "format", "json", "")
	c.DurationVar(&c.every, "checkpoint-interval", time.Second, "")
	c.Int64Var(&c.checkpointSteps, "checkpoint-steps", 0, "")
	c.BoolVar(&c.deterministic, "deterministic", false, "")
	c.Int64Var(&c.steps, "steps", 0, "")
	c.Int64Var(&c.maxSteps, "max-steps", 0, "")
	if err := c.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c
}

func nowhere(string) string { return "" }

// written is the path of a run configuration.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPrecedence: flag above --set above file above environment above default, and each is told.
func TestPrecedence(t *testing.T) {
	file := written(t, "RunConfig:\n  num_ps: 2\n  model_dir: /file\n  save_checkpoints_secs: 20\n  zk_server: file:1\nRunnerConfig: {index: 4, restore_ckpt: /m/model.ckpt-7, train.max_steps: 900, enable_sync_training: True}\n")
	c := newCommand(t, "--run-config", file, "--set", "model_dir=/set", "--set", "save_checkpoints_secs=30", "--shards", "5", "--set", "save_summary_steps=7")
	env := map[string]string{"zk_servers": "env:1", "TF_CONFIG": "{}"}
	r, err := c.options.Apply(c.FlagSet, "train", func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	if c.shards != 5 || c.dir != "/set" || c.every != 30*time.Second || c.index != 4 || c.name != "trainer-4" || c.restore != "model.ckpt-7" || c.checkpoint != "7" || c.maxSteps != 900 || c.steps != 0 || !c.deterministic || c.keep != 10 {
		t.Errorf("the flags are %+v", c)
	}
	want := []string{"deterministic: --deterministic true", "index 4 (file): --index 4 --name trainer-4", "model_dir /set (--set): --dir /set", "num_ps 5 (flag): --shards 5",
		"restore_ckpt /m/model.ckpt-7 (file): --restore-ckpt model.ckpt-7 --checkpoint 7", "save_checkpoints_secs 30 (--set): --checkpoint-interval 30s",
		"save_summary_steps 7 (--set) does nothing: figures are facts, told by the clock", "tf_config {} (environment) does nothing: monolith train runs all that it needs in one place", "train.max_steps 900 (file): --max-steps 900", "zk_server file:1 (file) does nothing: monolith train runs all that it needs in one place"}
	want[0] = "enable_sync_training true (file): --" + want[0][len("deterministic: --"):]
	var got []string
	for _, x := range r.All() {
		got = append(got, x.String())
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	facts := r.Facts()
	if !slices.Contains(facts, "num_ps=5") || slices.ContainsFunc(facts, func(s string) bool { return strings.HasPrefix(s, "tf_config") }) {
		t.Errorf("the facts are %q", facts)
	}
	if got := [2]string{os.Getenv("TF_GRPC_WORKER_CACHE_THREADS"), os.Getenv("MONOLITH_GRPC_WORKER_SERVICE_HANDLER_MULTIPLIER")}; got != [2]string{"16", "1.0"} {
		t.Errorf("exported are %q", got)
	}
}

// TestCheckpointsBySteps: steps count in place of the clock, whose flag is its caller's.
func TestCheckpointsBySteps(t *testing.T) {
	c := newCommand(t, "--set", "save_checkpoints_steps=400")
	r, err := c.options.Apply(c.FlagSet, "train", func(string) string { return "" })
	if err != nil || c.checkpointSteps != 400 || c.every != 0 {
		t.Errorf("every %v, every %d steps: %v", c.every, c.checkpointSteps, err)
	}
	if got := r.All()[0].String(); got != "save_checkpoints_steps 400 (--set): --checkpoint-steps 400 --checkpoint-interval 0s" {
		t.Error(got)
	}
	c = newCommand(t, "--set", "save_checkpoints_steps=400", "--checkpoint-interval", "7s")
	if _, err := c.options.Apply(c.FlagSet, "train", func(string) string { return "" }); err != nil || c.checkpointSteps != 400 || c.every != 7*time.Second {
		t.Errorf("every %v, every %d steps: %v", c.every, c.checkpointSteps, err)
	}
}

// TestNothingIsAskedFor: without a run configuration no flag moves and the environment does not count.
func TestNothingIsAskedFor(t *testing.T) {
	t.Setenv("TF_GRPC_WORKER_CACHE_THREADS", "mine")
	c := newCommand(t)
	r, err := c.options.Apply(c.FlagSet, "train", func(string) string { return "{" })
	if err != nil || r.All() != nil || r.Facts() != nil || c.shards != 3 || os.Getenv("TF_GRPC_WORKER_CACHE_THREADS") != "mine" {
		t.Errorf("%v, %v, %+v", r, err, c)
	}
}

// TestRefused: what cannot be meant, or is not done here, is an error of usage that says what to do.
func TestRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"is num_workers meant?":                     {"--set", "num_worker=2"},
		"line 2: save_checkpoint_sec is no key":     {"--run-config", written(t, "num_ps: 1\nsave_checkpoint_sec: 3\n")},
		"line 2: num_ps is given twice":             {"--run-config", written(t, "RunConfig: {num_ps: 1}\nnum_ps: 2\n")},
		"line 1: give keys with values":             {"--run-config", written(t, "- num_ps\n")},
		"must be key=value":                         {"--set", "num_ps"},
		`"two" is no whole number`:                  {"--set", "num_ps=two"},
		`"maybe" is neither true nor false`:         {"--set", "is_local=maybe"},
		"exclude one another":                       {"--set", "save_checkpoints_secs=1", "--set", "save_checkpoints_steps=1"},
		"clear_nn true (--set) asks for what is":    {"--set", "clear_nn=True"},
		"mode eval is that of another command":      {"--set", "mode=tf.estimator.ModeKeys.EVAL"},
		"data_type csv is none of":                  {"--set", "data_type=csv"},
		"are read together or not at all":           {"--set", "data_type=instance", "--set", "kafka_dump=1"},
		"save_checkpoints_secs 99999999999 (--set)": {"--set", "save_checkpoints_secs=99999999999"},
		"no such file":                              {"--run-config", "/nowhere/run.yaml"},
		"has 16375 bytes, at most 16374 are taken":  {"--set", "base_name=" + strings.Repeat("x", 16<<10-len("base_name"))},
		"--dir: model_dir has 16384 bytes":          {"--set", "model_dir=/m", "--dir", strings.Repeat("x", 16<<10)},
		"uuid is no UTF-8 text":                     {"--set", "uuid=\xff"},
		"line 2: a second document begins":          {"--run-config", written(t, "num_ps: 2\n---\nnum_ps: 3\n")},
		"which is no run configuration":             {"--run-config", written(t, strings.Repeat("#", maxFile+1))},
	} {
		c := newCommand(t, args...)
		if _, err := c.options.Apply(c.FlagSet, "train", nowhere); !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestFormats: how records are written follows from the keys of H.1, unless a flag says it.
func TestFormats(t *testing.T) {
	for want, sets := range map[string]string{
		"json":                       "num_ps=1",
		"instance+sort-id":           "data_type=instance",
		"example-batch+framed":       "data_type=example_batch,sort_id=false",
		"monolith-example+lagrangex": "data_type=Example,lagrangex_header=1",
		"instance+kafka-dump":        "data_type=INSTANCE,kafka_dump=1,kafka_dump_prefix=1",
	} {
		var args []string
		for _, s := range strings.Split(sets, ",") {
			args = append(args, "--set", s)
		}
		c := newCommand(t, args...)
		if _, err := c.options.Apply(c.FlagSet, "train", nowhere); err != nil || c.format != want {
			t.Errorf("%s: %s, %v, want %s", sets, c.format, err, want)
		}
	}
	c := newCommand(t, "--set", "data_type=instance", "--format", "example")
	if _, err := c.options.Apply(c.FlagSet, "train", nowhere); err != nil || c.format != "example" {
		t.Errorf("the flag does not count: %s, %v", c.format, err)
	}
}

// TestRanks: the index of a synchronous trainer is its rank by Horovod, MPI or BytePS.
func TestRanks(t *testing.T) {
	for _, tc := range []struct {
		env     string
		want    Ranks
		refused string
	}{
		{"", Ranks{LocalSize: 1}, ""},
		{"HOROVOD_RANK=3 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 OMPI_COMM_WORLD_RANK=0", Ranks{3, 4, 1, 2}, ""},
		{"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", Ranks{1, 2, 0, 1}, ""},
		{"DMLC_WORKER_ID=1 DMLC_NUM_WORKER=2 BYTEPS_LOCAL_RANK=3 BYTEPS_LOCAL_SIZE=4", Ranks{7, 8, 3, 4}, ""},
		{"HOROVOD_RANK=x", Ranks{}, "which is no rank or size"},
		{"HOROVOD_RANK=-1", Ranks{}, "which is no rank or size"},
		{"HOROVOD_RANK=2 HOROVOD_SIZE=2", Ranks{}, "ranks count from 0"},
	} {
		env := map[string]string{}
		for _, x := range strings.Fields(tc.env) {
			k, v, _ := strings.Cut(x, "=")
			env[k] = v
		}
		getenv := func(k string) string { return env[k] }
		got, err := RanksOf(getenv)
		if got != tc.want || (err == nil) != (tc.refused == "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s: %+v, %v", tc.env, got, err)
		}
		if err != nil || got.Size == 0 {
			continue
		}
		c := newCommand(t, "--set", "enable_sync_training=true")
		if _, err := c.options.Apply(c.FlagSet, "trainer", getenv); err != nil || c.index != got.Rank {
			t.Errorf("%s: index %d, %v", tc.env, c.index, err)
		}
	}
}

// TestKeys: each key is there once, and either steers, does nothing for a reason, is refused for a
// reason, or is read by name.
func TestKeys(t *testing.T) {
	read := []string{"mode", "is_local", "discovery_type", "tf_config", "zk_server", "uuid", "server_type", "data_type", "lagrangex_header", "sort_id", "kafka_dump", "kafka_dump_prefix"}
	seen := map[string]bool{}
	for _, k := range keys {
		ways := 0
		for _, yes := range []bool{len(k.flags) > 0, k.idle != "", k.no != "", slices.Contains(read, k.name)} {
			if yes {
				ways++
			}
		}
		if seen[k.name] || ways != 1 {
			t.Errorf("%s: twice %v, goes %d ways", k.name, seen[k.name], ways)
		}
		seen[k.name] = true
		if k.value != "" && k.kind != text {
			if v, err := k.kind.normal(k.value); err != nil || v != k.value {
				t.Errorf("%s is %q by default: %v", k.name, k.value, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("num_ps: 2\nRunConfig: {kafka_topics: [a, b], restore_dir: null, reload_alias_map: {a: 1}}"))
	f.Add([]byte(`{"num_ps": 2, "is_local": true}`))
	f.Add([]byte("&a num_ps: *a"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := Parse(raw)
		if err != nil {
			return
		}
		for name, g := range v {
			if k, ok := byName[name]; !ok || g.from != fromFile {
				t.Errorf("%s is taken from %s", name, g.from)
			} else if again, err := k.kind.normal(g.value); g.value != "" && (err != nil || again != g.value) {
				t.Errorf("%s: %q read again is %q, %v", name, g.value, again, err)
			}
		}
	})
}
