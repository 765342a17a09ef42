package host

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/services/replicaregistry"
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
