package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is a whole report with every series, of made-up figures.
func sample() Report {
	rng := rand.New(rand.NewPCG(1, 2))
	r := Report{
		RatingsRead: 100_836, RatingsTrained: 100_833, RatingsRejected: 3,
		AUCOnline: 0.7912, AUCFrozen: 0.6534, AUCBest: 0.8571,
		AUCBaseline: 0.7731, AUCBaselineFrozen: 0.6498, Lag: Lag{P50: 24, P90: 71},
		AUCByLag: []LagPoint{{5, 0.8012, 0.7881}, {25, 0.7921, 0.7735}, {200, 0.7803, Unknown()}},
		Recommendations: []Recommendation{{User: 414,
			Rated:  []Stars{{"Heat", "1995, Action", 4.5, true}, {"Notebook, The", "2004, Drama|Romance", 1, false}},
			Before: []Pick{{"Shawshank Redemption, The", "1994, Crime|Drama", 0.93, 0, 0, 0}, {"Amélie", "2001, Comedy|Romance", 0.91, 0, 0, 0}},
			After:  []Pick{{"Ronin", "1998, Action|Crime|Thriller", 0.95, 212, 0.4, 1.25}, {"Shawshank Redemption, The", "1994, Crime|Drama", 0.94, 1, -0.11, 0.2}}}},
		Freshness: Freshness{P50: 62.4, P99: 141.2, Samples: 100_833, FastestP50: 55.1, FastestP99: 120.9, ProducedP50: 66.2, ProducedP99: 147.5},
		Predict:   Predict{Rate: 499.7, P50: 2.134, P99: 11.87, Max: 148.3, Errors: 4, Calls: 51_204, Batch: 1, ErrorsByCode: map[string]int64{"Unavailable": 1, "shed": 3}},
		Events: map[string]int64{"deltasApplied": 2210, "partitionTaken": 4, "checkpointSaved": 12, "modelExported": 3, "declared": 2, "loadAccepted": 2,
			"planned": 2, "registered": 10, "stateChanged": 31, "reported": 9, "resourceReported": 44, "modelAvailable": 10, "ready": 2, "loadRequested": 2, "jobStarted": 1},
		Rejected:        map[string]int64{"movieId \"<thirty>\" is not a whole number": 2, "movieId \"forty\" is not a whole number": 1, "the row has 3 fields, not 4": 1},
		ReplayHashEqual: true, ReplicasAgree: true, ModelVersion: 3,
		Seconds: 103.24, FirstPredictionSeconds: 1.83, Seed: 1,
		Run: Run{Started: time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC), Data: "ratings.csv", Rate: 1000, BZID: "default", Job: "movies", Model: "movies",
			FrozenModel: "movies-frozen", Topic: "ratings", Partitions: 4, Trainers: 2, Shards: 2, ServeShards: 2, Replicas: 2,
			Half: 50_418, Scored: 99_100, Compared: 50_318, LogSeq: 2344, SyncSeq: 6120, SyncMs: 50, Machine: "linux/amd64, 2 cores"},
		Hashes: map[string]ViewHash{"catalog": {Seq: 2344, Hash: "c0ffee"}},
	}
	for i := 2000; i <= 100_000; i += 2000 {
		up := 1 - math.Exp(-float64(i)/15_000)
		p := AUCPoint{Ratings: i, Online: Figure(0.56 + 0.23*up + 0.02*rng.NormFloat64()), Frozen: Unknown(), Best: Figure(0.857 + 0.008*rng.NormFloat64())}
		if i > 50_000 {
			p.Frozen = Figure(0.72 - 0.08*float64(i-50_000)/50_000 + 0.015*rng.NormFloat64())
		}
		r.Series.AUC = append(r.Series.AUC, p)
	}
	r.Series.FrozenAtRating = 50_418
	r.Series.Marks = []Mark{{40.2, "replica movies:ps_0:1 <lost>"}, {40.9, "training shard 1 began again"}, {70, "replica movies:ps_1:0 lost"}}
	for s := range 101 {
		p50 := 60 + 4*rng.NormFloat64()
		if s != 40 && s != 41 {
			r.Series.Freshness = append(r.Series.Freshness, LatencyPoint{Second: float64(s), Count: 1000, P50: Figure(p50), P99: Figure(p50 + 50 + 30*rng.ExpFloat64())})
		}
		r.Series.Predict = append(r.Series.Predict, LatencyPoint{Second: float64(s), Count: 500, P50: Figure(2 + 0.2*rng.NormFloat64()), P99: Figure(8 + 4*rng.ExpFloat64())})
		r.Series.ProducedBySec = append(r.Series.ProducedBySec, CountPoint{float64(s), int64(min(s*1000, 100_833))})
		r.Series.TrainedBySec = append(r.Series.TrainedBySec, CountPoint{float64(s), int64(max(0, s*1000-40))})
	}
	for i := range 36 {
		x := (float64(i) - 12) / 5
		r.Series.FreshnessHist = append(r.Series.FreshnessHist, Bucket{From: float64(i * 5), To: float64(i*5 + 5), Count: int64(12_000 * math.Exp(-x*x/3))})
	}
	r.Series.FreshnessHist = append(r.Series.FreshnessHist, Bucket{From: 180, To: 420, Count: 37})
	r.Series.PredictSpread = []Percentile{{0, 0.9}, {10, 1.5}, {25, 1.8}, {50, 2.134}, {75, 2.9}, {90, 4.6}, {95, 6.3}, {99, 11.87}, {99.5, 16}, {99.9, 41}, {99.99, 97}, {100, 148.3}}
	return r
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); run with -update and review the change:\n%s", name, diff)
	}
}

func TestText(t *testing.T) {
	r := sample()
	var b bytes.Buffer
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.txt", b.Bytes())

	// A run that got nowhere still has a page.
	b.Reset()
	r = Report{AUCOnline: Unknown(), AUCFrozen: Unknown(), AUCBest: Unknown(), Seconds: Unknown(), FirstPredictionSeconds: Unknown(),
		Freshness: Freshness{P50: Unknown(), P99: Unknown(), FastestP50: Unknown()}, Predict: Predict{P50: Unknown(), P99: Unknown(), Max: Unknown(), Rate: Unknown()}}
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "empty.txt", b.Bytes())
}

// The keys of the JSON object are a contract.
func TestJSONKeys(t *testing.T) {
	r := sample()
	r.AUCBest = Unknown()
	data, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"ratings_read", "ratings_trained", "ratings_rejected", "auc_online", "auc_frozen", "auc_baseline", "auc_baseline_frozen", "lag", "auc_by_lag", "recommendations", "auc_best", "freshness_ms", "predict",
		"events", "rejected", "replay_hash_equal", "replicas_agree", "model_version", "seconds", "first_prediction_seconds", "seed"} {
		if _, ok := m[key]; !ok {
			t.Errorf("key %q is missing", key)
		}
	}
	if m["auc_best"] != nil {
		t.Errorf("an unknown figure is %v, not null", m["auc_best"])
	}
	for _, key := range []string{"p50", "p99", "samples"} {
		if _, ok := m["freshness_ms"].(map[string]any)[key].(float64); !ok {
			t.Errorf("freshness_ms.%s is missing", key)
		}
	}
	for _, key := range []string{"rate", "p50_ms", "p99_ms", "errors"} {
		if _, ok := m["predict"].(map[string]any)[key].(float64); !ok {
			t.Errorf("predict.%s is missing", key)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "report")
	r := sample()
	for range 2 { // a second run replaces the first
		if err := Write(dir, r); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"auc.svg", "backlog.svg", "freshness-histogram.svg", "freshness.svg", "predict-time.svg", "predict.svg", "report.html", "report.json"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	back, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := r.JSON()
	b, _ := back.JSON()
	if diff := cmp.Diff(string(a), string(b)); diff != "" {
		t.Errorf("report read back (-want +got):\n%s", diff)
	}
	for _, name := range want[:6] {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, name, data)
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading an empty folder: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(file, r); err == nil {
		t.Error("a report was written into a file")
	}
}

func wellFormed(t *testing.T, name string, data []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%s is no XML: %v", name, err)
		}
	}
}

func TestHTMLIsSelfContained(t *testing.T) {
	r := sample()
	r.Run.Data = `<script src="https://evil.example/x.js">`
	var b bytes.Buffer
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(b.String(), `xmlns="http://www.w3.org/2000/svg"`, "")
	for _, bad := range []string{"<script", `src="`, "@import", "url(", "<link", "href=", "http://"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if !strings.Contains(page, "&lt;script src=") {
		t.Error("the name of the data was not escaped")
	}
	if strings.Count(page, "ps_0:1 &lt;lost&gt;") < 3 || strings.Contains(page, "<lost>") {
		t.Error("what happened is not in the plots and in its list, or was not escaped")
	}
	if strings.Contains(page, "thirty") || !strings.Contains(page, "movieId … is not a whole number</td><td>3<") {
		t.Error("reasons are not grouped without their ids")
	}
	if n := strings.Count(page, "<svg"); n != 6 {
		t.Errorf("%d plots on the page, want 6", n)
	}
	for _, needed := range []string{"0.791", "0.653", "0.857", "0.773", "Ronin", "was 212th; learning &#43;0.40, latest ratings &#43;1.25", `class="tile bad"`, "141", "deltasApplied", "prefers-color-scheme: dark"} {
		if !strings.Contains(page, needed) {
			t.Errorf("the page lacks %q", needed)
		}
	}
}

// No plot may leave its frame or hold a NaN, whatever the figures.
func TestPlotsOfStrangeFigures(t *testing.T) {
	nan := Unknown()
	for name, s := range map[string]Series{
		"nothing":    {},
		"all NaN":    {AUC: []AUCPoint{{10, nan, nan, nan}}, Freshness: []LatencyPoint{{0, 0, nan, nan}}, FreshnessHist: []Bucket{{0, 5, 0}}},
		"one point":  {AUC: []AUCPoint{{10, 0.7, nan, nan}}, Freshness: []LatencyPoint{{3, 1, 1, 1}}, PredictSpread: []Percentile{{0, 1}, {100, 1}}, ProducedBySec: []CountPoint{{0, 0}}},
		"zero":       {AUC: []AUCPoint{{0, 0, 0, 0}}, Freshness: []LatencyPoint{{0, 0, 0, 0}}, FreshnessHist: []Bucket{{0, 0, 5}}},
		"tiny, huge": {AUC: []AUCPoint{{1, 1e-9, 1, 1}, {2_000_000_000, 1, 0, 1}}, Freshness: []LatencyPoint{{0, 1, 1e-7, 1e12}}, FreshnessHist: []Bucket{{0, 1e-6, 1}, {1e-6, 1e9, 1}}},
		"infinite":   {Freshness: []LatencyPoint{{0, 1, Figure(math.Inf(1)), Figure(math.Inf(-1))}}},
	} {
		r := Report{Series: s, Freshness: Freshness{P50: nan, P99: 1}}
		for _, p := range r.plots() {
			if strings.Contains(p.SVG, "NaN") || strings.Contains(p.SVG, "Inf") {
				t.Errorf("%s: %s contains a number that is none:\n%s", name, p.File, p.SVG)
			}
			if len(p.SVG) > 200_000 {
				t.Errorf("%s: %s has %d bytes", name, p.File, len(p.SVG))
			}
			wellFormed(t, p.File, []byte(p.SVG))
		}
	}
}

func TestAxisIsHonest(t *testing.T) {
	a := newCanvas(half, linear(0, 1, 5, false, "", plain), linear(0, 148.3, 5, true, "ms", plain), "").y
	if a.lo != 0 || a.hi < 148.3 || a.px(0) != half.h-marginB {
		t.Errorf("latency axis runs from %v to %v", a.lo, a.hi)
	}
	var texts []string
	for _, k := range a.ticks {
		texts = append(texts, k.text)
	}
	if !slices.Equal(texts, []string{"0", "50", "100", "150"}) {
		t.Errorf("ticks %v", texts)
	}
}

func TestNumbers(t *testing.T) {
	for _, tc := range [][2]string{
		{count(0), "0"}, {count(-1234), "-1,234"}, {count(100836), "100,836"}, {count(999), "999"},
		{millis(0.0312), "0.03"}, {millis(9.999), "10.0"}, {millis(99.96), "100"}, {millis(1234.4), "1,234"},
		{number(1.83), "1.8"}, {number(1000), "1,000"}, {number(Unknown()), unknown}, {auc(0.79949), "0.799"}, {signed(-0.1), "−0.100"},
		{counted(1, "call"), "1 call"}, {counted(0, "call"), "0 calls"},
	} {
		if tc[0] != tc[1] {
			t.Errorf("%q, want %q", tc[0], tc[1])
		}
	}
}

// TestFailedCallsAreNotHidden shows them as a check that failed, and no figure of a load
// that was not asked for.
func TestFailedCallsAreNotHidden(t *testing.T) {
	page := func(p Predict) string {
		t.Helper()
		r := sample()
		r.Predict = p
		var b bytes.Buffer
		if err := r.HTML(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := page(Predict{Calls: 5001, Errors: 13, P99: 3, ErrorsByCode: map[string]int64{"UNAVAILABLE": 13}}); !strings.Contains(got, `<li class="no"><b>no</b>Each of the load’s Predict calls was answered: 13 of 5,001 were not (13 UNAVAILABLE)`) {
		t.Error("13 errors are not shown as a failed check")
	}
	if got := page(Predict{Calls: 5001, P99: 3}); !strings.Contains(got, `<li class="ok"><b>yes</b>Each of the load’s Predict calls was answered`) {
		t.Error("a load without errors is not shown")
	}
	if got := page(Predict{}); strings.Contains(got, "Predict calls was") || !strings.Contains(got, "no load was asked for") {
		t.Error("a figure of no load is shown")
	}
}

func TestReasonsWithoutIDs(t *testing.T) {
	for reason, want := range map[string]string{
		`movieId "a \"b\" c" is not a whole number`:                         "movieId … is not a whole number",
		"the row has 3 fields, not 4":                                       "the row has 3 fields, not 4",
		"invalid rating: userId 281474976710656 is not within 0 and 2^48-1": "invalid rating: userId … is not within 0 and …-1",
		"rating 5.5 is not within 0 and 5":                                  "rating … is not within 0 and 5",
		"feature \"unended":                                                 "feature …",
		"ps_0 does not answer":                                              "ps_0 does not answer",
	} {
		if got := withoutIDs(reason); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}
