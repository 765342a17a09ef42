package journal_test

import (
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/bench/journal"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestAppendAndReplay(t *testing.T) {
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{
		journal.Append([]journal.AppendCase{{Callers: 1, N: 20, RawN: 20, Rounds: 1}, {Callers: 32, N: 100, RawN: 50, Rounds: 1}}),
		journal.Replay([]journal.ReplayCase{{N: 50, Rounds: 1}, {N: 150, Rounds: 1}}),
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

// TestAppendToThree appends to a log that three servers have.
func TestAppendToThree(t *testing.T) {
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{journal.AppendReplicated([]journal.AppendCase{{Callers: 1, N: 10, RawN: 10, Rounds: 1}, {Callers: 32, N: 100, RawN: 50, Rounds: 1}})})
	if err != nil || len(got) != 2 || got[1].Name != "append-r3/callers=32,n=100" {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestChurn plans a few models anew, and beside them one.
func TestChurn(t *testing.T) {
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{journal.Churn([]journal.ChurnCase{{Models: 3, Replicas: 4, Rounds: 1, Linear: 1, Within: time.Minute}})})
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
