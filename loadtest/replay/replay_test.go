package replay

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// movies is the demo's model.
func movies(t testing.TB, seed uint64) *model.ModelSpec {
	t.Helper()
	spec, err := specfile.Read("../demo/movies.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	spec = proto.CloneOf(spec)
	spec.Seed = seed
	return spec
}

func all(s gen.Source) []rating.Record {
	var rs []rating.Rating
	for r, ok := s.Next(); ok; r, ok = s.Next() {
		rs = append(rs, r)
	}
	return Records(rs, s.Catalog())
}

func simulated(t testing.TB, seed uint64, n int) []rating.Record {
	t.Helper()
	s, err := gen.NewSimulator(gen.SimulatorConfig{Seed: seed, Count: n})
	if err != nil {
		t.Fatal(err)
	}
	return all(s)
}

func movieLens(t testing.TB) []rating.Record {
	t.Helper()
	f, err := gen.OpenCSV(oracle.Ratings(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return all(f)
}

// beats plays each stream and demands that the model is above biases by margin on average.
// With five of them the 95 % interval of the differences is above 0 too, with fewer every one is.
func beats(t *testing.T, streams func(seed uint64) []rating.Record, seeds int, o Options, margin float64) {
	t.Helper()
	var sum, squares float64
	worst := math.Inf(1)
	var text []string
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		recs := streams(seed)
		got, err := Run(t.Context(), movies(t, seed), recs, o)
		if err != nil {
			t.Fatal(err)
		}
		base := Biases(recs, o)
		text = append(text, fmt.Sprintf("%.4f (biases %.4f)", got, base))
		sum, squares, worst = sum+got-base, squares+(got-base)*(got-base), min(worst, got-base)
	}
	mean, low := sum/float64(seeds), worst
	if seeds == 5 {
		low = mean - 2.776*math.Sqrt(max(0, squares/5-mean*mean)/4) // Student's t of 4 degrees of freedom
	}
	t.Logf("%+v: %+.4f, at least %+.4f: %s", o, mean, low, strings.Join(text, ", "))
	if mean < margin || low <= 0 {
		t.Errorf("%+v: the model is above a table of biases by %.4f, at least %.4f: want %.3f, and above 0", o, mean, low, margin)
	}
}

// TestModelBeatsBiases is the demo's promise: online and frozen, at any lag.
func TestModelBeatsBiases(t *testing.T) {
	streams := func(seed uint64) []rating.Record { return simulated(t, seed, 20_000) }
	for _, o := range []Options{{Lag: 25}, {Frozen: true}} {
		beats(t, streams, 2, o, 0.01)
	}
}

func TestModelBeatsBiasesOnMovieLens(t *testing.T) {
	recs := movieLens(t)
	seeds, options := 1, []Options{{Lag: 25, Batch: 8}}
	if os.Getenv("MONOLITH_LONG") != "" {
		seeds, options = 5, []Options{{Lag: 5}, {Lag: 25}, {Lag: 50}, {Lag: 200}, {Lag: 25, Batch: 16}, {Frozen: true}}
	}
	for _, o := range options {
		beats(t, func(uint64) []rating.Record { return recs }, seeds, o, 0.01)
	}
}

// TestModelBeatsBiasesOnFiveAudiences takes minutes.
func TestModelBeatsBiasesOnFiveAudiences(t *testing.T) {
	if os.Getenv("MONOLITH_LONG") == "" {
		t.Skip("set MONOLITH_LONG=1 to simulate five audiences")
	}
	streams := func(seed uint64) []rating.Record { return simulated(t, seed, 60_000) }
	beats(t, streams, 5, Options{Lag: 5}, 0.005) // a lag that no job has: biases know nearly all
	for _, o := range []Options{{Lag: 25}, {Lag: 200}, {Frozen: true}} {
		beats(t, streams, 5, o, 0.01)
	}
}

// TestReplayIsDeterministic, and a lag is what separates it from learning at once.
func TestReplayIsDeterministic(t *testing.T) {
	recs := simulated(t, 1, 3000)
	var got [3]float64
	for i, o := range []Options{{Lag: 10}, {Lag: 10}, {}} {
		var err error
		if got[i], err = Run(t.Context(), movies(t, 1), recs, o); err != nil {
			t.Fatal(err)
		}
	}
	if got[0] != got[1] || got[0] == got[2] {
		t.Errorf("AUC %v and %v at a lag of 10, %v at none", got[0], got[1], got[2])
	}
}

func TestRefusesWhatRecordsLack(t *testing.T) {
	spec := movies(t, 1)
	spec.Features[2].Field = "director"
	if _, err := New(spec, 1); err == nil || !strings.Contains(err.Error(), `"director"`) {
		t.Errorf("%v", err)
	}
}

// TestReadyModelsReadTheRecords learns a little of each file of docs/models, and of the demo's own.
func TestReadyModelsReadTheRecords(t *testing.T) {
	files, err := filepath.Glob("../../docs/models/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	recs := simulated(t, 1, 300)
	for _, file := range append(files, "../demo/movies.yaml", "testdata/lists.yaml") {
		spec, err := specfile.Read(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		if auc, err := Run(t.Context(), spec, recs, Options{Lag: 10, Batch: 10}); err != nil || math.IsNaN(auc) {
			t.Errorf("%s: AUC %v, %v", file, auc, err)
		}
	}
}
