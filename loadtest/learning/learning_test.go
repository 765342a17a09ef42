package learning

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/rating"
)

func movieLens(t *testing.T) []rating.Record {
	t.Helper()
	f, err := gen.OpenCSV(oracle.Ratings(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return records(f)
}

// TestOracleLearnsTheSame holds one pass over MovieLens against TensorFlow's.
func TestOracleLearnsTheSame(t *testing.T) {
	python := oracle.Python(t)
	got, err := TensorFlow(t.Context(), python, movieLens(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("AUC %.6f here, %.6f in TensorFlow %s; scores at most %.1e apart; %.0f, %.0f and in its graph %.0f ratings/s",
		got.Ours.AUC, got.Theirs.AUC, got.Version, got.Apart, got.Ours.Rate, got.Theirs.Rate, got.Speeds[1].InGraph)
	if !(math.Abs(got.Ours.AUC-got.Theirs.AUC) <= 0.0005) || got.Ours.AUC < 0.7 {
		t.Errorf("AUC %v here, %v in TensorFlow", got.Ours.AUC, got.Theirs.AUC)
	}
	if len(got.Ours.Losses) < 30 {
		t.Fatalf("%d points of the loss", len(got.Ours.Losses))
	}
	for i, loss := range got.Ours.Losses {
		if !(math.Abs(loss-got.Theirs.Losses[i]) <= 0.002) {
			t.Errorf("loss %d: %v here, %v in TensorFlow", i, loss, got.Theirs.Losses[i])
		}
	}
}

// TestRun measures a little of all that needs nothing from outside, and its page says what was measured.
func TestRun(t *testing.T) {
	var said []string
	cfg := Config{Seeds: 2, Simulated: 4000, Epochs: 2, Say: func(format string, _ ...any) { said = append(said, format) }}
	res, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Sync(t.Context(), 2, 4000)
	if err != nil || !reflect.DeepEqual(again, res.Sync) {
		t.Errorf("the same seeds gave another result: %+v, %+v, %v", res.Sync, again, err)
	}
	if res.TensorFlow != nil || res.Collisions != nil || len(res.Sync.Rows) != len(every) || len(said) != 2 || !strings.HasPrefix(said[1], "LEFT OUT") {
		t.Fatalf("%+v, %q", res, said)
	}
	if rare, each := res.Sync.Rows[0].AUC.Mean, res.Sync.Rows[len(every)-1].AUC.Mean; !(each > rare) || rare < 0.5 {
		t.Errorf("AUC %v synchronised after each rating, %v rarely", each, rare)
	}
	audience, err := gen.NewSimulator(gen.SimulatorConfig{Seed: 3, Count: 4000})
	if err != nil {
		t.Fatal(err)
	}
	recs := records(audience)
	if res.Collisions, err = Collisions(t.Context(), recs, 2, 2); err != nil {
		t.Fatal(err)
	}
	if arms := res.Collisions.Arms; len(arms[0].AUC) != 2 || arms[0].Users != 0 || !(arms[2].Movies > arms[1].Movies) || !(arms[1].Movies > 0) {
		t.Errorf("%+v", arms)
	}
	if res.Features, err = Features(t.Context(), recs, 2); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Write(dir, res); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "learning.md"))
	if err != nil || strings.Contains(string(page), "TensorFlow") || strings.Count(string(page), "\n## ") != 3 {
		t.Errorf("%v:\n%s", err, page)
	}
	for _, name := range []string{"sync.svg", "collisions.svg"} {
		if svg, err := os.ReadFile(filepath.Join(dir, "learning", name)); err != nil || !strings.Contains(string(svg), "<path") {
			t.Errorf("%s: %v, %s", name, err, svg)
		}
	}
}

// TestClaims fails what was not shown.
func TestClaims(t *testing.T) {
	row := func(mean, half float64) Estimate { return Estimate{mean, half} }
	r := &Result{
		TensorFlow: &TensorFlowResult{Ours: Learnt{AUC: 0.7}, Theirs: Learnt{AUC: 0.7006}, Speeds: []Speed{{64, 9, 1, 1}}},
		Sync:       &SyncResult{Rows: []SyncRow{{}, {Gain: row(0.1, 0)}, {Gain: row(-0.0001, 0)}}},
		Collisions: &CollisionsResult{Arms: []CollisionsArm{{}, {Loss: []Estimate{row(0.1, 0), row(0, 0)}}}},
		Features:   &FeaturesResult{Models: []FeaturesRow{{}, {Gain: row(0.1, 0.2)}}},
	}
	for _, c := range r.Claims() {
		if c.Holds {
			t.Errorf("holds: %s", c.Sentence)
		}
	}
	r.TensorFlow.Theirs.AUC, r.TensorFlow.Speeds[0].Ours, r.Sync.Rows[2].Gain.Mean = 0.7004, 10, 0
	r.Collisions.Arms[1].Loss[1].Mean, r.Features.Models[1].Gain.Half = 0.001, 0.05
	for _, c := range r.Claims() {
		if !c.Holds {
			t.Errorf("missed: %s", c.Sentence)
		}
	}
	r.Load = 31
	if c := r.Claims()[1]; c.Holds || !strings.Contains(c.Sentence, "load of 31") {
		t.Errorf("on a busy machine: %+v", c)
	}
	if n := len(r.Claims()); n != 5 {
		t.Errorf("%d claims", n)
	}
}

// The script learns by the rates that the model declares; what it does not know is refused.
func TestTheScriptsRule(t *testing.T) {
	spec, err := ready("deepfm", 1)
	if err != nil {
		t.Fatal(err)
	}
	spec.GetDenseOptimizer().GetAdagrad().LearningRate = denseRate
	if got, err := ruleOf(spec); err != nil || got != (rule{Dim: 17, Rows: 0.05, Dense: denseRate, Accumulator: 0.1}) {
		t.Errorf("%+v, %v", got, err)
	}
	spec.GetTables()[1].GetSegments()[1].GetOptimizer().GetAdagrad().WeightDecay = 0.1
	if _, err := ruleOf(spec); err == nil || !strings.Contains(err.Error(), `table "movie"`) {
		t.Errorf("another rule: %v", err)
	}
}

func TestEstimate(t *testing.T) {
	if e := NewEstimate([]float64{1, 2, 3}); e.Mean != 2 || math.Abs(e.Half-4.303/math.Sqrt(3)) > 1e-9 {
		t.Errorf("%+v", e)
	}
	if e := NewEstimate([]float64{5}); e != (Estimate{5, 0}) {
		t.Errorf("%+v", e)
	}
}

// The page in docs is what its figures render to.
func TestThePageIsOfItsFigures(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	text, err := os.ReadFile(filepath.Join(docs, "learning", "learning.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r Result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	files, err := r.files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(docs, name)); err != nil || string(got) != string(want) {
			t.Errorf("docs/%s is not what its figures render to (%v): run monolith learn docs", name, err)
		}
	}
	if r.TensorFlow == nil || r.Sync == nil || r.Collisions == nil || r.Features == nil {
		t.Error("something was left out")
	}
}
