package host

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/host/discovery"
	"github.com/monolith-go/monolith/internal/host/runconfig"
)

// TestJobRole: the launcher says which role a process is, else server_type, else a rank; what says nothing
// or two things is refused by name.
func TestJobRole(t *testing.T) {
	const cluster = `TF_CONFIG={"cluster":{"ps":["p:1"],"chief":["c:1"],"evaluator":["e:1"]},"task":{"type":"%s","index":0}}`
	mlp := []string{"MLP_ROLE=PS", "MLP_ROLE_INDEX=0", "MLP_PS_NUM=1", "MLP_PS_0_HOST=p", "MLP_PS_0_PORT=1"}
	for _, tc := range []struct {
		sets, env  []string
		want, says string
	}{
		{[]string{"num_ps=1"}, []string{fmt.Sprintf(cluster, "ps")}, "ps", ""},
		{[]string{"num_ps=1"}, []string{fmt.Sprintf(cluster, "chief")}, "worker", ""},
		{[]string{"num_ps=1"}, []string{fmt.Sprintf(cluster, "evaluator")}, "evaluator", ""}, // Run has no such role
		{[]string{"discovery_type=mlp"}, mlp, "ps", ""},
		{[]string{"server_type=chief"}, []string{fmt.Sprintf(cluster, "chief")}, "worker", ""},
		{[]string{"server_type=worker"}, []string{fmt.Sprintf(cluster, "ps")}, "", "tf_config says that this process is ps 0, and server_type that it is worker"},
		{[]string{"server_type=ps", "index=3"}, nil, "ps", ""},
		{[]string{"server_type=ps", "enable_sync_training=true"}, []string{"HOROVOD_RANK=1", "HOROVOD_SIZE=2"}, "ps", ""},
		{[]string{"enable_sync_training=true"}, []string{"HOROVOD_RANK=1", "HOROVOD_SIZE=2"}, "worker", ""},
		{[]string{"enable_sync_training=true"}, []string{"DMLC_WORKER_ID=1", "DMLC_NUM_WORKER=2"}, "worker", ""},
		{[]string{"num_ps=1"}, []string{"HOROVOD_RANK=1", "HOROVOD_SIZE=2"}, "", "nothing says which role"},
		{[]string{"enable_sync_training=true"}, nil, "", "give --set server_type=ps"},
		{nil, []string{fmt.Sprintf(cluster, "ps")}, "", "nothing says which role"}, // no run configuration is asked for
	} {
		getenv := func(name string) string {
			for _, e := range tc.env {
				if value, ok := strings.CutPrefix(e, name+"="); ok {
					return value
				}
			}
			return ""
		}
		v, err := (&runconfig.Options{Sets: tc.sets}).Read(getenv)
		if err != nil {
			t.Fatal(err)
		}
		guard, err := discovery.Open(v, getenv)
		if err != nil {
			t.Fatal(err)
		}
		got, err := jobRole(v, guard, getenv)
		if got != tc.want || (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%v, %v: %q, %v", tc.sets, tc.env, got, err)
		}
	}
}

// TestRunnerTakesTheFlagsOfBoth: a flag reaches each role that has it, as given by the caller, and no other.
func TestRunnerTakesTheFlagsOfBoth(t *testing.T) {
	fs := pflag.NewFlagSet("runner", pflag.ContinueOnError)
	r := NewRunner(fs)
	if err := fs.Parse([]string{"--job", "j", "--deterministic", "--batch", "7", "--kafka", "a:1", "--kafka", "b:1", "--health-every", "9s", "--set", "num_ps=2", "--set", "index=1"}); err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{"job": {"ps": "j", "trainer": "j"}, "deterministic": {"ps": "true", "trainer": "true"}, "batch": {"trainer": "7"},
		"kafka": {"trainer": "[a:1,b:1]"}, "health-every": {"ps": "9s"}, "set": {"ps": "[num_ps=2,index=1]", "trainer": "[num_ps=2,index=1]"}}
	for _, p := range r.roles {
		p.fs.VisitAll(func(f *pflag.Flag) {
			if want, given := all[f.Name][p.role.Name]; f.Changed != given || given && f.Value.String() != want {
				t.Errorf("--%s of %s is %s, given %t", f.Name, p.role.Name, f.Value, f.Changed)
			}
		})
	}
	if err := fs.Parse([]string{"--batch", "many"}); err == nil {
		t.Error("a batch that is no number")
	}
}
