package serving

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/bench/product"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// The benchmarks that need no process of this binary run at the least size.
func TestServingBenchmarks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: memory is read in /proc, which is of Linux")
	}
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{
		Versions([]VersionsCase{{Versions: 4, Rows: 200_000, Changed: 100_000, Rounds: 1}}),
		UpdateRipple([]UpdateCase{{Rows: 2000, PerSecond: 100_000, Each: 300 * time.Millisecond, Rounds: 1}},
			product.Ripple(product.StartCluster, []product.RippleCase{{Candidates: 5, Rate: 100, Rows: 20_000, PerSecond: 10_000, Lag: wait.Patience, Each: 300 * time.Millisecond, Rounds: 1}})),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 11 || got[0].Name != "versions/n=4,rows=200000,changed=100000 memory" || got[4].Name != "update-ripple/rows=2000,deltas=100000/s p99.9" ||
		got[5].Name != "update-ripple/stack,candidates=5,calls=100/s,rows=20000,deltas=0/s p50" || got[10].Name != "update-ripple/stack,candidates=5,calls=100/s,rows=20000,deltas=10000/s p99.9" {
		t.Errorf("%+v", got)
	}
	if ratio := float64(got[0].Ratio); ratio < 0.5 || ratio > 2 {
		t.Errorf("a changed row takes %v of a row", ratio)
	}
}

// Triton holds both versions while it reloads.
func TestTritonSwap(t *testing.T) {
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{{Name: "swap-ripple", Run: func(ctx context.Context, r *bench.Runner) error {
		return tritonSwap(ctx, r, SwapCase{Rows: 1 << 17, Dim: 64, Rate: 20, Quiet: 300 * time.Millisecond, Rounds: 2})
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 {
		t.Skip("SKIPPED: triton is not installed; make peers installs it")
	}
	if len(got) != 3 || got[2].Name != "swap-ripple/MiB=32,Triton reloading memory" {
		t.Errorf("%+v", got)
	}
	if rest, swap := float64(got[2].BaselineValue), float64(got[2].Value); rest < 32 || swap < rest+16 {
		t.Errorf("%v MiB at rest, %v while reloading: a second process of the backend reads 32 MiB", rest, swap)
	}
}

// The rows of a version are those that it changed, and the newest of those before it.
func TestNewest(t *testing.T) {
	const groups = 3
	var last [groups]int
	for version := range 10 {
		if version > 0 {
			last[version%groups] = version
		}
		for g := range groups {
			if got := newest(g, version, groups); got != last[g] {
				t.Errorf("version %d, group %d: %d, want %d", version, g, got, last[g])
			}
		}
	}
}
