package trainer

import (
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/step"
)

func TestValidate(t *testing.T) {
	good := Config{Job: "j", Model: "m", Brokers: []string{"h:1"}, Dir: "/tmp/x"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*Config){
		"job": func(c *Config) { c.Job = "a/b" }, "model": func(c *Config) { c.Model = "" },
		"kafka": func(c *Config) { c.Brokers = nil }, "dir": func(c *Config) { c.Dir = "x" },
		"batch": func(c *Config) { c.Batch = step.MaxBatch + 1 }, "shards": func(c *Config) { c.Shards = -1 },
		"lease-ttl": func(c *Config) { c.LeaseTTL = 1500 * time.Millisecond }, "linger": func(c *Config) { c.Linger = -1 },
		"index": func(c *Config) { c.Index = -1 }, "keep": func(c *Config) { c.Keep = -1 },
		"export-every": func(c *Config) { c.ExportEvery = -2 }, "checkpoint-every": func(c *Config) { c.CheckpointEvery = -1 },
	} {
		c := good
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Two namespaces, or two jobs, on one NATS must never wait for each other.
func TestNamespacesShareNoLease(t *testing.T) {
	seen := map[string][3]string{}
	for _, bzid := range []string{"a", "b", "a.b"} {
		for _, job := range []string{"b", "c", "b.c"} {
			s := &Server{cfg: Config{Job: job}, env: services.Env{BZID: bzid}}
			for _, what := range []string{"chief", "partition.1"} {
				name, who := s.lease(what), [3]string{bzid, job, what}
				if other, taken := seen[name]; taken {
					t.Errorf("%v and %v share the lease %q", who, other, name)
				}
				seen[name] = who
			}
		}
	}
}
