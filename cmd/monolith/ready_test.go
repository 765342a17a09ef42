package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/testenv/planted"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// Each ready model runs through the whole product: it is declared, learns a rule from Kafka that biases cannot,
// is exported, served with its deltas, and ranks what it has not seen by that rule.
func TestReadyModelsThroughTheProduct(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, "docs", "models", "*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			spec, err := specfile.Read(file, nil)
			if err != nil {
				t.Fatal(err)
			}
			productLearns(t, name, spec)
		})
	}
}

// A model whose file asks for int8 is declared, trained in float32, exported, and served by products of int8.
func TestInt8ThroughTheProduct(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", "models", "deepfm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := specfile.Parse(append(text, "serving_compute: INT8\n"...))
	if err != nil || spec.GetServingCompute() != model.ModelSpec_INT8 {
		t.Fatalf("%v, %v", spec.GetServingCompute(), err)
	}
	productLearns(t, "deepfm", spec)
}

func productLearns(t *testing.T, name string, spec *model.ModelSpec) {
	cfg := opsConfig(t.TempDir())
	cfg.Shards, cfg.Replicas, cfg.Trainers, cfg.Partitions, cfg.Spans = 1, 1, 1, 1, false
	w := opsServe(t, cfg, func(w *opsWorld) { w.spec = spec })
	rng := rand.New(rand.NewPCG(7, 8))
	const asked, chunk = 500, 2000
	learnt := 16_000
	if lists(spec) {
		learnt = 40_000 // which of several movies counts is to be found out too
	}
	for range learnt / chunk {
		recs := make([]kafka.Record, chunk)
		for i := range recs {
			recs[i] = kafka.Record{Topic: w.Config.Topics.Ratings, Value: planted.Draw(rng, name).AppendJSON(nil)}
		}
		w.write(recs...)
	}
	w.learnt()
	w.agree()

	auc := w.auc(spec, func() planted.Rating { return planted.Draw(rng, name) }, asked)
	t.Logf("AUC %.3f", auc)
	if !(auc > 0.75) {
		t.Errorf("what is served has the AUC %.3f after %d records: biases have 0.5, and LR's best is 0.79", auc, learnt)
	}
}

// auc asks the serving port about ratings to come.
func (w *opsWorld) auc(spec *model.ModelSpec, draw func() planted.Rating, asked int) float64 {
	w.t.Helper()
	var all []planted.Rating
	for len(all) < asked {
		if x := draw(); !lists(spec) || len(x.Liked) == 3 { // rows of one length are a plain tensor
			all = append(all, x)
		}
	}
	inputs := map[string]*tfserving.TensorProto{}
	for _, f := range spec.GetFeatures() {
		var ids []int64
		for _, x := range all {
			ids = append(ids, x.IDs(f.GetField())...)
		}
		tensor := tfserving.NewInt64(ids)
		if width := len(ids) / asked; width > 1 {
			tensor = tfserving.NewInt64(ids, int64(asked), int64(width))
		}
		inputs[f.GetName()] = tensor
	}
	conn, err := grpc.NewClient(w.entry, grpc.WithTransportCredentials(insecure.NewCredentials()))
	w.must("dial the entry", err)
	defer conn.Close()
	resp, err := tfserving.NewPredictionClient(conn).Predict(w.soon(), &apis.PredictRequest{ModelSpec: tfserving.Spec(host.ModelName, 0), Inputs: inputs})
	w.must("Predict", err)
	answer := resp.GetOutputs()["score"]
	if answer == nil {
		answer = resp.GetOutputs()[spec.GetTasks()[0].GetName()]
	}
	floats, err := tfserving.Floats(nil, answer, asked)
	w.must("read the scores", err)
	var scores []float64
	var labels []bool
	for i, x := range all {
		scores, labels = append(scores, float64(floats[i])), append(labels, x.Stars >= 3.5)
	}
	return eval.AUC(scores, labels)
}

// lists says whether a model reads several ids of a feature.
func lists(spec *model.ModelSpec) bool {
	for _, f := range spec.GetFeatures() {
		if f.GetPooling() == model.Feature_FIRSTN {
			return true
		}
	}
	return false
}
