// Package runconfig is the run configuration of Monolith in Python, its RunConfig and RunnerConfig, for
// our commands: each key steers a flag of ours, or is said to do nothing, or is refused with what to do
// instead.
//
//	environment ─┐
//	--run-config ┼─ merged: the later counts ──► rules ──► flags that the caller has not given himself
//	--set        ┘                                    └──► Report: what was overridden, from where, to what effect
//
// A flag of the command line counts above all. Nothing is kept: what a run configuration does, its flags
// do, and a job states its user's overrides in jobStarted.
package runconfig

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/process/flags"
)

// Options are the flags of a command that takes a run configuration.
type Options struct {
	File string
	Sets []string
}

// EnvFile is where the file's name comes from when no flag gives it.
const EnvFile = "MONOLITH_RUN_CONFIG"

// Register binds the flags.
func (o *Options) Register(fs *pflag.FlagSet) {
	fs.StringVar(&o.File, "run-config", flags.Env(EnvFile, ""), "YAML or JSON `file` with the fields of Monolith's RunConfig and RunnerConfig; flags count above it ("+EnvFile+")")
	fs.StringArrayVar(&o.Sets, "set", nil, "a field of the run configuration, as `key=value`, above the file's; repeatable")
}

// given is a key's value, and who gave it.
type given struct {
	value, from string
}

// Where values come from, the least first.
const (
	fromEnvironment = "environment"
	fromFile        = "file"
	fromSet         = "--set"
)

// Values are keys with what the environment, the file and --set say of them; the last counts.
type Values map[string]given

// Get is what is said of key, or its default; "" is Python's None.
func (v Values) Get(name string) string {
	if g := v[name]; g.value != "" {
		return g.value
	}
	return byName[name].value
}

// Is says that a key is true.
func (v Values) Is(name string) bool { return v.Get(name) == "true" }

// Given says that somebody has given the key a value.
func (v Values) Given(name string) bool { return v[name].value != "" }

// Read gathers the values, nil where no run configuration is asked for. All complaints come joined, as
// errors of usage.
func (o *Options) Read(getenv func(string) string) (Values, error) {
	if o.File == "" && len(o.Sets) == 0 {
		return nil, nil
	}
	file := Values{}
	if o.File != "" {
		raw, err := readFile(o.File)
		if err != nil {
			return nil, fmt.Errorf("%w: --run-config: %w", flags.ErrUsage, err)
		}
		if file, err = Parse(raw); err != nil {
			return nil, fmt.Errorf("%w: --run-config %s: %w", flags.ErrUsage, o.File, err)
		}
	}
	sets, err := parseSets(o.Sets)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	v := Values{}
	maps.Copy(v, file)
	maps.Copy(v, sets)
	env, err := environment(getenv, v.Is("enable_sync_training"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	for name, g := range env {
		if !v.Given(name) {
			v[name] = g
		}
	}
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("%w: run configuration: %w", flags.ErrUsage, err)
	}
	return v, nil
}

// Launch notes what a launcher says of this process, below all that the user says.
func (v Values) Launch(name, value string) {
	if !v.Given(name) {
		v[name] = given{value, fromEnvironment}
	}
}

// check holds the rules of the original (facts I.2), and refuses what is not done here.
func (v Values) check() error {
	var errs []error
	for _, k := range keys {
		if g := v[k.name]; k.no != "" && g.from != "" && g.value != "" && g.value != k.value {
			errs = append(errs, fmt.Errorf("%s %s (%s) asks for what is not done here: %s", k.name, g.value, g.from, k.no))
		}
	}
	for _, what := range []string{"save_checkpoints", "dense_only_save_checkpoints"} {
		if v.Get(what+"_secs") != "" && v.Get(what+"_steps") != "" {
			errs = append(errs, fmt.Errorf("%[1]s_secs and %[1]s_steps exclude one another: give one", what))
		}
	}
	_, err := v.format()
	return errors.Join(append(errs, err)...)
}

// modes are how commands are called in the original, whose mode a run configuration may name.
var modes = map[string]string{"train": "train", "train-and-evaluate": "train", "trainer": "train", "ps": "train", "evaluate": "eval", "predict": "infer"}

// ofDiscovery are the keys that say how roles in processes of their own are found.
var ofDiscovery = func() map[string]bool {
	all := map[string]bool{}
	for _, k := range discovering {
		all[k.name] = true
	}
	return all
}()

// Apply has the values set the flags of command that its caller has not given, and says what came of
// each. It exports what the original exports. Without a run configuration nothing is done: nil.
func (v Values) Apply(fs *pflag.FlagSet, command string) (*Report, error) {
	if v == nil {
		return nil, nil
	}
	if m, here := v.Get("mode"), modes[command]; v.Given("mode") && here != "" && m != here {
		return nil, fmt.Errorf("%w: mode %s is that of another command: monolith %s is mode %s, which does not change", flags.ErrUsage, m, command, here)
	}
	var own []string // flags by which the caller has decided
	fs.Visit(func(f *pflag.Flag) { own = append(own, f.Name) })
	r := new(Report)
	for _, k := range keys {
		x := Override{Key: k.name, Value: v.Get(k.name), From: v[k.name].from, Idle: k.idle}
		if x.Value == "" {
			continue
		}
		flags := k.flags
		if part, _, ok := strings.Cut(k.name, "."); ok && part != modes[command] {
			flags = nil
		}
		for _, f := range flags {
			if err := x.steer(fs, f, slices.Contains(own, f.name)); err != nil {
				return nil, err
			}
		}
		if ofDiscovery[k.name] && command != "ps" && command != "trainer" {
			x.Idle = "monolith " + command + " runs all that it needs in one place"
		}
		if len(k.flags) > 0 && len(x.Flags) == 0 {
			x.Idle = "monolith " + command + " has no flag for it"
		}
		r.add(x)
	}
	format, _ := v.format() // checked by Read
	if f := fs.Lookup("format"); f != nil && format != "" && !slices.Contains(own, "format") {
		if err := fs.Set("format", format); err != nil {
			return nil, fmt.Errorf("%w: run configuration: data_type: %w", flags.ErrUsage, err)
		}
		r.note("data_type", "--format "+format)
	}
	return r, v.export()
}

// Apply is Read and Values.Apply in one.
func (o *Options) Apply(fs *pflag.FlagSet, command string, getenv func(string) string) (*Report, error) {
	v, err := o.Read(getenv)
	if err != nil {
		return nil, err
	}
	return v.Apply(fs, command)
}

// steer sets one flag, if the command has it and its caller does not.
func (x *Override) steer(fs *pflag.FlagSet, f flag, own bool) error {
	known := fs.Lookup(f.name)
	if known == nil {
		return nil
	}
	if own {
		if len(x.Flags) == 0 {
			x.Value, x.From = known.Value.String(), "flag"
			if err := stateable(x.Key, x.Value); err != nil {
				return fmt.Errorf("%w: --%s: %w", flags.ErrUsage, f.name, err)
			}
		}
		x.Flags = append(x.Flags, "--"+f.name+" "+known.Value.String())
		return nil
	}
	text := x.Value
	if f.as != nil {
		text = f.as(text)
	}
	if err := fs.Set(f.name, text); err != nil {
		return fmt.Errorf("%w: run configuration: %s %s (%s): %w", flags.ErrUsage, x.Key, x.Value, x.From, err)
	}
	x.Flags = append(x.Flags, "--"+f.name+" "+text)
	return nil
}

// format is the name of our format for records that are written as the keys say, "" where they say
// nothing of it (facts H.1).
func (v Values) format() (string, error) {
	kind := strings.ReplaceAll(strings.ToLower(v.Get("data_type")), "_", "-")
	switch kind {
	case "":
		return "", nil
	case "example":
		kind = "monolith-example"
	case "example-batch", "examplebatch", "exampl-ebatch":
		kind = "example-batch"
	case "instance":
	default:
		return "", fmt.Errorf("data_type %s is none of instance, example and example_batch", v.Get("data_type"))
	}
	dump, prefix, sort := v.Is("kafka_dump"), v.Is("kafka_dump_prefix"), v.Is("sort_id")
	switch {
	case v.Is("lagrangex_header"):
		return kind + "+lagrangex", nil
	case dump && prefix && sort:
		return kind + "+kafka-dump", nil
	case dump || prefix:
		return "", errors.New("kafka_dump, kafka_dump_prefix and sort_id are read together or not at all: give all three")
	case sort:
		return kind + "+sort-id", nil
	}
	return kind + "+framed", nil
}

// export puts what the original exports for its estimator into the environment of this process and its
// children, over what is there: TF_GRPC_WORKER_CACHE_THREADS and
// MONOLITH_GRPC_WORKER_SERVICE_HANDLER_MULTIPLIER. Nothing here reads them.
func (v Values) export() error {
	for _, name := range []string{"tf_grpc_worker_cache_threads", "monolith_grpc_worker_service_handler_multiplier"} {
		if err := os.Setenv(strings.ToUpper(name), v.Get(name)); err != nil {
			return err
		}
	}
	return nil
}
