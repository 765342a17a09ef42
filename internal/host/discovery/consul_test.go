package discovery

import (
	"errors"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// TestOracleConsul: tasks are found by one another at a real agent, which takes its time to tell its
// catalogue; another one takes a task's place, and an agent that was restarted hears of it again.
func TestOracleConsul(t *testing.T) {
	agent := oracle.Consul(t)
	host, port, err := net.SplitHostPort(agent.Addr)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"CONSUL_HTTP_HOST=" + host, "CONSUL_HTTP_PORT=" + port}
	sets := []string{"discovery_type=consul", "deep_insight_name=movies"}
	g, err := open(t, sets, env...)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := g.Query(t.Context(), "ps"); err != nil || len(found) != 0 {
		t.Fatalf("%v, %v", found, err)
	}
	problems := make(chan error, 100)
	told := func(err error) { problems <- err }
	if err := errors.Join(g.Register(t.Context(), "ps", 0, "10.0.0.1:7001", told), g.Register(t.Context(), "ps", 1, "10.0.0.1:7002", told),
		g.Register(t.Context(), "worker", 0, "10.0.0.1:8001", told)); err != nil {
		t.Fatal(err)
	}
	finds := func(want map[int]string) {
		t.Helper()
		wait.For(t, "the tasks to be found", func() bool {
			found, err := g.Query(t.Context(), "ps")
			return err == nil && cmp.Equal(found, want)
		})
	}
	finds(map[int]string{0: "10.0.0.1:7001", 1: "10.0.0.1:7002"})

	other, err := open(t, sets, env...)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Register(t.Context(), "ps", 1, "10.0.0.9:7003", told); err != nil {
		t.Fatal(err)
	}
	finds(map[int]string{0: "10.0.0.1:7001", 1: "10.0.0.9:7003"})
	agent.Restart(t)
	agent.AwaitConsul(t)
	if found, err := g.Query(t.Context(), "ps"); err != nil || len(found) != 0 {
		t.Fatalf("an agent that was restarted knows %v, %v", found, err)
	}
	keep := func(g *Guard, index int, addr string) {
		t.Helper()
		if err := g.backend.(keeper).Keep(t.Context(), "ps", index, addr); err != nil {
			t.Fatal(err)
		}
	}
	keep(g, 0, "10.0.0.1:7001")
	keep(other, 1, "10.0.0.9:7003")
	finds(map[int]string{0: "10.0.0.1:7001", 1: "10.0.0.9:7003"})

	// The worker and the shard whose place was taken are unknown to the agent by now, which is as good as gone.
	if err := errors.Join(g.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	reader, err := open(t, sets, env...)
	if err != nil {
		t.Fatal(err)
	}
	g = reader
	finds(map[int]string{})
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	if len(problems) > 0 {
		t.Errorf("told was %v", <-problems)
	}
}
