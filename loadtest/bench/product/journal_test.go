package product_test

import (
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/bench/product"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestAppendAndReplay(t *testing.T) {
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{
		product.Append([]product.AppendCase{{Callers: 1, N: 20, RawN: 20, Rounds: 1}, {Callers: 32, N: 100, RawN: 50, Rounds: 1}}),
		product.Replay([]product.ReplayCase{{N: 50, Rounds: 1}, {N: 150, Rounds: 1}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range got {
		names = append(names, g.Name)
		if !(g.Value > 0) || !(g.BaselineValue > 0) || g.Ratio != g.Value/g.BaselineValue {
			t.Errorf("%+v", g)
		}
	}
	if want := []string{"append/callers=1,n=20", "append/callers=32,n=100", "replay/n=50", "replay/n=150"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}
