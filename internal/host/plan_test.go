package host

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"

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
