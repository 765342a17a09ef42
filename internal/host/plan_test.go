package host

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/services/ps"
	"github.com/monolith-go/monolith/services/ps/machine"
	"github.com/monolith-go/monolith/services/replicaregistry"
	"github.com/monolith-go/monolith/services/trainer"
)

// What `monolith up` is told about the ZooKeeper port, the registry takes.
func TestUpHandsZKFlagsOn(t *testing.T) {
	var cfg Config
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	cfg.Register(fs, t.TempDir())
	if err := fs.Parse([]string{"--zk-words", "ruok,wchs", "--zk-super-digest-file", "/secret", "--zk-port", "2222"}); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	tasks := (&Stack{Config: cfg}).plan()
	i := slices.IndexFunc(tasks, func(t Task) bool { return t.Role == "replica-registry" })
	var reg replicaregistry.Config
	fs = pflag.NewFlagSet("replica-registry", pflag.ContinueOnError)
	reg.Register(fs)
	if err := fs.Parse(tasks[i].Args); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(reg.ZK.Words, []string{"ruok", "wchs"}) || reg.ZK.SuperDigestFile != "/secret" || reg.ZKListen != "127.0.0.1:2222" {
		t.Errorf("%+v", reg)
	}
	cfg.ZKWords = []string{"nope"}
	if err := cfg.Validate(); err == nil {
		t.Error("a word that there is not")
	}
}

// What `monolith up` is told about the records, the trainers take.
func TestUpHandsTheFormatOn(t *testing.T) {
	var cfg Config
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	cfg.Register(fs, t.TempDir())
	for _, format := range []string{"json", "example-batch+kafka-dump"} {
		if err := fs.Parse([]string{"--kafka", "127.0.0.1:9"}); err != nil {
			t.Fatal(err)
		}
		cfg.Format = format
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, task := range (&Stack{Config: cfg}).plan() {
			if task.Role != "trainer" {
				continue
			}
			var c trainer.Config
			flags := pflag.NewFlagSet("trainer", pflag.ContinueOnError)
			c.Register(flags)
			if err := flags.Parse(task.Args); err != nil || c.Format != format || c.Validate() != nil {
				t.Errorf("%s: %q, %v, %v", format, c.Format, err, c.Validate())
			}
		}
	}
	cfg.Format = "xml"
	if err := cfg.Validate(); err == nil {
		t.Error("a format that there is not")
	}
}

// What a stack is told about machines and dumps, its shards and trainers take, zeros too; a stack that is
// told nothing leaves a shard its own defaults.
func TestHandsMachinesAndDumpsOn(t *testing.T) {
	var told Config
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	told.Register(fs, t.TempDir())
	if err := fs.Parse([]string{"--health-every", "0", "--health-memory", "0", "--health-command", "test -e 'a b'", "--dump-features", "--kafka", "127.0.0.1:9"}); err != nil {
		t.Fatal(err)
	}
	untold := told
	untold.Health, untold.DumpFeatures = machine.Config{}, false
	for _, tc := range []struct {
		cfg     Config
		every   time.Duration
		memory  float64
		command string
	}{{told, 0, 0, "test -e 'a b'"}, {untold, 30 * time.Second, 0.97, ""}} {
		var seen int
		for _, task := range (&Stack{Config: tc.cfg}).plan() {
			flags := pflag.NewFlagSet(task.Role, pflag.ContinueOnError)
			var shard ps.Config
			var learner trainer.Config
			switch task.Role {
			case "ps":
				shard.Register(flags)
			case "trainer":
				learner.Register(flags)
			default:
				continue
			}
			seen++
			if err := flags.Parse(task.Args); err != nil {
				t.Fatal(err)
			}
			if h := shard.Health; task.Role == "ps" && (h.Every != tc.every || h.Memory != tc.memory || h.Command != tc.command) {
				t.Errorf("%s: %+v", task.Name, h)
			}
			if task.Role == "trainer" && learner.DumpFeatures != tc.cfg.DumpFeatures {
				t.Errorf("%s dumps: %t", task.Name, learner.DumpFeatures)
			}
		}
		if seen != tc.cfg.Shards+tc.cfg.Trainers {
			t.Errorf("%d tasks were looked at", seen)
		}
	}
	told.Health.Memory = 1.5
	if err := told.Validate(); err == nil || !strings.Contains(err.Error(), "health memory 1.5") {
		t.Errorf("a share above 1: %v", err)
	}
}
