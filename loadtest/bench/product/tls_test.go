package product

import (
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/loadtest/bench"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestPortsUnderKeys measures every port once, at the least size, in clear text and under keys.
func TestPortsUnderKeys(t *testing.T) {
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{TLS([]TLSCase{{Callers: 2, Batch: 2, Each: 20 * time.Millisecond, Events: 20, Rounds: 1}})})
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for _, g := range got {
		name, _, _ := strings.Cut(strings.TrimPrefix(g.Name, "tls/"), " ")
		ports = append(ports, name)
		if !(g.Value > 0) || !(g.BaselineValue > 0) {
			t.Errorf("%+v", g)
		}
	}
	if want := "nats rows grpc rest status zk"; strings.Join(ports, " ") != want {
		t.Errorf("measured %v, want %s", ports, want)
	}
}
