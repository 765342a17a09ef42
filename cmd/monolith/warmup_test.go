package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/warmupfile"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// What was asked of one version is asked of the next before it is AVAILABLE: the job's export has the
// requests, as has one that is made by the command, and a model server replays them.
func TestWarmUpByRequests(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Replicas = 1
	w := opsServe(t, cfg)
	w.rate(100)
	w.learnt()
	client, err := scenario.Dial(w.entry)
	w.must("dial the entry", err)
	defer client.Close()
	users, movies := []int64{3, 4}, []int64{5, 6}
	_, err = predictPairs(client, w.soon(), host.ModelName, "why-1", users, movies)
	w.must("Predict", err)
	explanation(w, "why-1", len(users))
	if log := w.log.String(); strings.Contains(log, "warmed up") {
		t.Error("the first version was warmed up by requests that nobody had asked")
	}
	version, err := w.job.Checkpoint(w.soon(), "with requests")
	w.must("export", err)
	_, err = w.job.AwaitExport(w.soon())
	w.must("wait for the export", err)
	asked := warmUpsIn(t, filepath.Join(w.Exports(), "entry", strconv.FormatInt(version, 10)))
	if len(asked) != 1 || !slices.Equal(asked[0].GetInputs()["user"].GetInt64Val(), users) || !slices.Equal(asked[0].GetInputs()["movie"].GetInt64Val(), movies) {
		t.Fatalf("the export has the requests %v", asked)
	}
	w.load()
	w.until("the next version to be warmed up", func() (bool, string) {
		for line := range strings.Lines(w.log.String()) {
			if strings.Contains(line, "warmed up") && strings.Contains(line, filepath.Join("entry", strconv.FormatInt(version, 10), filepath.FromSlash(warmupfile.Name))) {
				return strings.Contains(line, "\"requests\":1,") || strings.Contains(line, "requests=1 "), line
			}
		}
		return false, w.log.tail(5)
	})
	w.agree()

	to := t.TempDir()
	export := func(more ...string) (int, string) {
		code, out, stderr := opsTool(append([]string{"export", "--dir", cfg.Dir, "--to", to, "--kafka", w.Config.Kafka, "--warm-up-requests", "9"}, more...)...)
		return code, out + stderr
	}
	if code, said := export("--predictions-topic", "none"); code != exitFailure || !strings.Contains(said, "no such topic") {
		t.Errorf("of no topic: %d %s", code, said)
	}
	if code, said := export("--predictions-topic", w.Config.Topics.Ratings); code != exitFailure || !strings.Contains(said, "holds no answer of model") {
		t.Errorf("of another topic: %d %s", code, said)
	}
	if code, said := export("--model-version", "77"); code != exitOK || !strings.Contains(said, "1 requests") {
		t.Fatalf("%d %s", code, said)
	}
	if again := warmUpsIn(t, filepath.Join(to, "entry", "77")); len(again) != 1 || !proto.Equal(again[0], asked[0]) {
		t.Errorf("the command has exported %v", again)
	}
}

// warmUpsIn are the requests in the folder of an entry's version.
func warmUpsIn(t *testing.T, dir string) (all []*apis.PredictRequest) {
	t.Helper()
	e, err := checkpoint.ReadEntry(dir)
	if err != nil {
		t.Fatal(err)
	}
	for recorded, err := range warmupfile.Requests(bytes.NewReader(e.Files[warmupfile.Name])) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, recorded.GetPredictLog().GetRequest())
	}
	return all
}
