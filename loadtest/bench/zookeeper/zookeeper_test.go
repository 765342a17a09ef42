package zookeeper

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/peers"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// The benchmarks run against Apache's server in both places: every figure is there.
func TestZooKeeperBenchmarks(t *testing.T) {
	start := func(ctx context.Context, dir string, _ bool) (Server, error) {
		return peers.StartZooKeeper(ctx, dir)
	}
	bs := []bench.Benchmark{
		Create(start, []Case{{N: 500, Rounds: 1}}), Set(start, []Case{{N: 500, Rounds: 1}}),
		Memory(start, []MemoryCase{{Nodes: 500, Starts: 1, Rest: time.Millisecond}}),
		Get(start, []Case{{N: 500, Rounds: 1}}), Watch(start, []WatchCase{{Sessions: 5, Times: 3}}),
	}
	results, err := (&bench.Runner{}).Run(t.Context(), bs)
	if errors.Is(err, peers.ErrMissing) && os.Getenv("CI") != "true" {
		t.Skipf("SKIPPED: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 11 {
		t.Errorf("%d results, want 11", len(results))
	}
	for _, r := range results {
		if !(r.Value > 0) || !(r.BaselineValue > 0) {
			t.Errorf("%s: nothing was measured", r)
		}
	}
}

func TestProcessFigures(t *testing.T) {
	before, err := bench.CPUTime(os.Getpid())
	if runtime.GOOS != "linux" {
		t.Skipf("SKIPPED, /proc is of Linux: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	after, err := bench.CPUTime(os.Getpid())
	if err != nil || after-before < time.Millisecond || after-before > 10*time.Second {
		t.Errorf("20 ms of work took %v of CPU time, %v", after-before, err)
	}
	if n, err := resident(os.Getpid()); err != nil || n < 1<<20 {
		t.Errorf("%d bytes resident, %v", n, err)
	}
	if _, err := bench.CPUTime(1 << 25); err == nil {
		t.Error("a process that is not there has CPU time")
	}
}
