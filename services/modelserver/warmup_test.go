package modelserver_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/internal/model/warmupfile"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver"
	"github.com/monolith-go/monolith/services/trainer/warmup"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// warmUpFile is where the warm-up requests of a version lie.
func (w *world) warmUpFile(version int64) string {
	w.t.Helper()
	path := filepath.Join(w.path("entry", version), "assets.extra", "tf_serving_warmup_requests")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) record(version int64, requests ...*apis.PredictRequest) {
	w.t.Helper()
	file, err := warmupfile.Encode(requests)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.warmUpFile(version), file, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func monitored(t *testing.T) func(*modelserver.Config) {
	return func(c *modelserver.Config) {
		c.MonitoringConfigFile = textFile(t, `prometheus_config { enable: true }`)
	}
}

// patient lets look-ups, and rows, take as long as a busy machine makes them.
func patient(c *modelserver.Config) { c.LookupTimeout, c.WarmUpWait = time.Minute, time.Minute }

// warmed is how many recorded requests a server has replayed of a version, with that status.
func (s *served) warmed(t *testing.T, version int64, status string) float64 {
	t.Helper()
	_, text := get(t, s, "/monitoring/prometheus/metrics")
	return sample(t, text, `:tensorflow:serving:model_warmup_latency_count{model_path="`+s.w.path("entry", version)+`",status="`+status+`"}`)
}

// entries configures versions of the entry, beside the rows of both.
func (s *served) entries(t *testing.T, versions ...int64) {
	t.Helper()
	models := tfserving.Config(
		tfserving.Model{Name: ranker + ":ps_0", BasePath: filepath.Join(s.w.dir, "ps_0"), Policy: tfserving.Policy{Versions: []int64{1, 2}}},
		tfserving.Model{Name: ranker + ":entry", BasePath: filepath.Join(s.w.dir, "entry"), Policy: tfserving.Policy{Versions: versions}})
	if _, err := s.models.HandleReloadConfigRequest(testContext(t), &apis.ReloadConfigRequest{Config: models}); err != nil {
		t.Fatal(err)
	}
}

// Recorded requests are answered before a version is AVAILABLE; one that it refuses fails it, and the
// version before it stays.
func TestWarmUp(t *testing.T) {
	w := newWorld(t)
	w.export(1, 1, 0)
	w.export(2, 1, 0)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	w.record(1, request([]int64{1}, []int64{2}), request([]int64{3, 4}, []int64{5, 6}))
	s, _ := w.one(1, monitored(t), patient)
	s.mustLoad(1, "ps_0") // rows of which the entry asks
	s.mustLoad(1, "ps_0", "entry")
	if got := s.warmed(t, 1, "OK"); got != 2 {
		t.Errorf("%v requests were replayed before the version was AVAILABLE, want 2", got)
	}
	if got := s.counted(t, "monolith_modelserver_predict_total", "OK"); got != 0 {
		t.Errorf("%v of them count as predictions", got)
	}
	wait.Until(t, "the first answer", func() error { return s.check([]int64{1}, []int64{2}) })
	s.entries(t, 1)
	s.until("ps_0", "2 AVAILABLE", "1 AVAILABLE") // rows of which the next one asks
	wrong := request([]int64{1}, []int64{2})
	delete(wrong.Inputs, "movie")
	for name, tc := range map[string]struct {
		file func()
		want codes.Code
		says string
	}{
		"a refused one": {func() { w.record(2, request([]int64{1}, []int64{2}), wrong) }, codes.InvalidArgument, "record 1: input size does not match signature"},
		"too many":      {func() { w.record(2, slices.Repeat([]*apis.PredictRequest{request([]int64{1}, []int64{2})}, 1001)...) }, codes.InvalidArgument, "exceeds the maximum (1000) supported"},
		"no record": {func() {
			if err := os.WriteFile(w.warmUpFile(2), []byte("these are no records"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, codes.DataLoss, "record 0 is broken"},
	} {
		tc.file()
		s.entries(t, 1, 2)
		wait.Until(t, name, func() error { // the state alone is that of the failure before, too
			res, err := s.models.GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(ranker, 2)})
			if err != nil {
				return err
			}
			v := res.GetModelVersionStatus()[0]
			if st := v.GetStatus(); v.GetState() != apis.ModelVersionStatus_END || codes.Code(st.GetErrorCode()) != tc.want || !strings.Contains(st.GetErrorMessage(), tc.says) {
				return fmt.Errorf("%v; want %v saying %q", v, tc.want, tc.says)
			}
			return nil
		})
		if err := s.check([]int64{1}, []int64{2}); err != nil {
			t.Errorf("%s: the version before it: %v", name, err)
		}
		s.entries(t, 1)
	}
	off := w.serve("off", func(c *modelserver.Config) {
		c.Register(pflag.NewFlagSet("", pflag.ContinueOnError))
		c.EnableModelWarmUp = false
	})
	if err := off.load(2, "entry"); err != nil {
		t.Errorf("without warm-up: %v", err)
	}
}

// A version does not wait for rows that nobody has.
func TestWarmUpWithoutRows(t *testing.T) {
	w := newWorld(t)
	w.export(1, 1, 0)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	w.record(1, request([]int64{1}, []int64{2}), request([]int64{3}, []int64{4}))
	s := w.serve("alone", monitored(t))
	s.mustLoad(1, "entry")
	if got := s.warmed(t, 1, "UNAVAILABLE"); got != 1 {
		t.Errorf("%v requests were tried, want 1", got)
	}
}

// The shards of a version have more to read than its entry, which waits for them before it is AVAILABLE.
func TestWarmUpWaitsForRows(t *testing.T) {
	w := newWorld(t)
	w.export(1, 1, 0)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	w.record(1, request([]int64{1}, []int64{2}), request([]int64{3}, []int64{4}))
	s, _ := w.one(1, monitored(t), patient)
	loaded := make(chan error, 1)
	go func() { loaded <- s.load(1, "entry") }()
	wait.Until(t, "the entry to look for rows", func() error {
		_, text := get(t, s, "/monitoring/prometheus/metrics")
		if !strings.Contains(text, `status="UNAVAILABLE"`) {
			return fmt.Errorf("it has not yet: %s", text)
		}
		return nil
	})
	select {
	case err := <-loaded:
		t.Fatalf("it is AVAILABLE without them: %v", err)
	default:
	}
	s.mustLoad(1, "ps_0", "entry")
	if err := <-loaded; err != nil {
		t.Error(err)
	}
	if got := s.warmed(t, 1, "OK"); got != 2 {
		t.Errorf("%v requests were replayed before the version was AVAILABLE, want 2", got)
	}
}

// TestOracleWarmUp loads what TensorFlow's own writer has written: each kind of request that is replayed.
func TestOracleWarmUp(t *testing.T) {
	python := oracle.Python(t)
	w := newWorld(t)
	w.export(1, 1, 0)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	cmd := exec.CommandContext(t.Context(), python, "testdata/tf_warmup.py", w.warmUpFile(1), ranker)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s, _ := w.one(1, monitored(t), patient)
	s.mustLoad(1, "ps_0")
	if err := s.load(1, "ps_0", "entry"); err != nil {
		t.Fatal(status.Convert(err).Message())
	}
	if got := s.warmed(t, 1, "OK"); got != 4 {
		t.Errorf("%v requests were replayed, want 4", got)
	}
}

// A request is replayed as often as is wanted.
func TestWarmUpIterations(t *testing.T) {
	w := newWorld(t)
	w.export(1, 1, 0)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	w.record(1, request([]int64{1}, []int64{2}), request([]int64{3, 4}, []int64{5, 6}))
	s, _ := w.one(1, monitored(t), patient, func(c *modelserver.Config) { c.WarmUpIterations = 3 })
	s.mustLoad(1, "ps_0")
	s.mustLoad(1, "ps_0", "entry")
	if got := s.warmed(t, 1, "OK"); got != 6 {
		t.Errorf("2 requests were replayed %v times in all, want 6", got)
	}
}

// What a server has written about its answers is asked again of the next version, every kind of input, as
// the trainer's exports take it along, and scored as it was.
func TestWarmUpByAnswers(t *testing.T) {
	broker, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0", Topics: map[string]int32{impression.Topic: 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	w := newWorld(t)
	w.listed()
	w.export(1, 1, 0)
	w.export(2, 1, 0)
	s, _ := w.one(1, monitored(t), patient, func(c *modelserver.Config) {
		c.Brokers, c.PredictionsTopic, c.SampleRate = []string{broker.Addr()}, impression.Topic, -1
	})
	s.mustLoad(1, "ps_0", "entry")
	rows := []viewing{{1, []int64{4, 3}, 5, "fr", 0.5, []float32{1, -1}}, {2, nil, 6, "de", 40, []float32{0.25, 3}}}
	wait.Until(t, "the first answer", func() error { _, err := s.ask(tensors(rows)); return err })
	ctx := metadata.AppendToOutgoingContext(testContext(t), "x-impression", "1")
	for _, asked := range []map[string]*tfserving.TensorProto{tensors(rows), tensors(rows[:1]), tensors(rows[1:]), {"examples": strings64(example(t, rows[0]))}} {
		if _, err := s.predict.Predict(ctx, &apis.PredictRequest{ModelSpec: tfserving.Spec(ranker, 0), Inputs: asked}); err != nil {
			t.Fatal(err)
		}
	}
	spec := proto.CloneOf(w.spec)
	spec.Name = ranker
	source := warmup.Source{Brokers: []string{broker.Addr()}, Topic: impression.Topic, Requests: 10}
	var sample *warmup.Sample
	wait.Until(t, "the impressions", func() (err error) {
		if sample, err = source.Newest(testContext(t), spec); err == nil && (sample.Requests != 3 || sample.LeftOut != 1) {
			err = fmt.Errorf("%+v", sample)
		}
		return err
	})
	if !strings.Contains(sample.Because.Error(), `input "country": row 0: the text of hash`) { // a record's
		t.Error(sample.Because)
	}
	replayed := 0
	for r := tfrecord.NewReader(bytes.NewReader(sample.File), 1<<20); ; replayed++ {
		record, err := r.Next()
		if err != nil {
			break
		}
		log := &apis.PredictionLog{}
		if err := proto.Unmarshal(record, log); err != nil {
			t.Fatal(err)
		}
		again := log.GetPredictLog().GetRequest().GetInputs()
		got, err := s.ask(again)
		if err != nil {
			t.Fatal(err)
		}
		if err := same(got, w.answers([][]viewing{rows, rows[:1], rows[1:]}[replayed])); err != nil {
			t.Errorf("request %d: %v", replayed, err)
		}
	}
	if err := os.WriteFile(w.warmUpFile(2), sample.File, 0o600); err != nil {
		t.Fatal(err)
	}
	s.entries(t, 1, 2)
	s.until("entry", "2 AVAILABLE", "1 AVAILABLE")
	if got := s.warmed(t, 2, "OK"); got != 3 || replayed != 3 {
		t.Errorf("%v requests were replayed, want 3 of %d", got, replayed)
	}
}
