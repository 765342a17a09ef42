package product

import (
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/loadtest/bench"
)

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

// TestAppendToThree appends to a log that three servers have.
func TestAppendToThree(t *testing.T) {
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{AppendReplicated([]AppendCase{{Callers: 1, N: 10, RawN: 10, Rounds: 1}, {Callers: 32, N: 100, RawN: 50, Rounds: 1}})})
	if err != nil || len(got) != 2 || got[1].Name != "append-r3/callers=32,n=100" {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestChurn plans a few models anew, and beside them one.
func TestChurn(t *testing.T) {
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{Churn([]ChurnCase{{Models: 3, Replicas: 4, Rounds: 1, Linear: 1, Within: time.Minute}})})
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, g := range got {
		if !(g.Value > 0) || !(g.BaselineValue > 0) || !g.Ratio.Known() {
			t.Errorf("%+v", g)
		}
	}
	if met := got[0].Met; met == nil || !*met {
		t.Errorf("three models are not planned within a minute: %+v", got[0])
	}
}
