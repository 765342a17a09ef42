package agentconf

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file that agent.conf includes need not be there; agent.conf itself must.
func TestAgentConfIncludes(t *testing.T) {
	more := write(t, "more.conf", "agent_port 4002\nbzid other\n")
	conf := write(t, "agent.conf", "bzid b1\ninclude /nowhere/absent.conf\ninclude="+more+"\nbase_name m # the model\nbare\n")
	c, err := Read(conf)
	if err != nil || c.BZID != "b1" || c.BaseName != "m" || c.AgentPort != 4002 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Read("/nowhere/agent.conf"); err == nil {
		t.Error("a --conf that is not there passes")
	}
	loop := filepath.Join(t.TempDir(), "loop.conf")
	if err := os.WriteFile(loop, []byte("include "+loop+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(loop); err == nil || !strings.Contains(err.Error(), "does one include itself") {
		t.Errorf("a file that includes itself: %v", err)
	}
}

// Every key sets its own field, by the rules of its kind.
func TestEveryKey(t *testing.T) {
	var text strings.Builder
	want := map[string]any{}
	c := Default()
	n := 0
	collect(reflect.ValueOf(&c).Elem(), func(key string, v reflect.Value) {
		n++
		switch v.Kind() {
		case reflect.Bool:
			text.WriteString(key + " " + map[bool]string{true: "No", false: "t"}[v.Bool()] + "\n")
			want[key] = !v.Bool()
		case reflect.Int:
			text.WriteString(key + "=60 * (2 + 1) * 1000\n")
			want[key] = 180000
		case reflect.Float64:
			text.WriteString(key + " = 0.25\n")
			want[key] = 0.25
		case reflect.Slice:
			text.WriteString(key + " ps_{i}; i % 2 == 0\n" + key + "\tentry; True\n" + key + " dense; False\n")
			want[key] = []string{"ps_{i}; i % 2 == 0", "entry; True", "dense; False"}
		default:
			text.WriteString(key + " of_" + key + "\n" + key + " again\n")
			want[key] = "of_" + key
		}
	})
	if n != 25+46 {
		t.Errorf("%d keys; the original has 25 of TensorFlow Serving and 46 of its own that a file sets", n)
	}
	got, err := Read(write(t, "agent.conf", text.String()+"no_such_key 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]any{}
	collect(reflect.ValueOf(&got).Elem(), func(key string, v reflect.Value) { have[key] = v.Interface() })
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !slices.Equal(got.Unknown, []string{"no_such_key"}) {
		t.Errorf("unknown keys: %q", got.Unknown)
	}
}

func TestOddValues(t *testing.T) {
	for text, want := range map[string]func(Config) bool{
		"zk_servers None\nagent_port none":    func(c Config) bool { return c.ZKServers == "" && c.AgentPort == 0 },
		"dc_aware whatever":                   func(c Config) bool { return c.DCAware }, // any other text is yes
		"use_metrics F":                       func(c Config) bool { return !c.UseMetrics },
		"server_type ps":                      func(c Config) bool { return c.DeployType == "ps" && c.Unknown == nil },
		"server_type ps\ndeploy_type entry":   func(c Config) bool { return c.DeployType == "entry" },
		"per_process_gpu_memory_fraction 1*1": func(c Config) bool { return c.PerProcessGPUMemoryFraction == 1 },
	} {
		if c, err := Read(write(t, "agent.conf", text)); err != nil || !want(c) {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	for _, text := range []string{"num_ps two", "num_ps __import__('os')", "num_ps 7/2", "per_process_gpu_memory_fraction x"} {
		key, _, _ := strings.Cut(text, " ")
		if _, err := Read(write(t, "agent.conf", text)); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
