package modelserver_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/inferencepb"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/modelserver"
)

func textFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.pbtxt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TensorFlow Serving's metrics stand under its names at its path, or the one that is asked for.
func TestMonitoring(t *testing.T) {
	w := newWorld(t)
	w.export(1, 1, 0)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	const path = "/monitoring/prometheus/metrics"
	s, subs := w.one(1, func(c *modelserver.Config) {
		c.MonitoringConfigFile = textFile(t, `prometheus_config { enable: true }`)
	})
	s.mustLoad(1, subs...)
	wait.Until(t, "the first answer", func() error { return s.check([]int64{1}, []int64{2}) })
	_, before := get(t, s, path)
	v2 := inferencepb.NewGRPCInferenceServiceClient(s.conn)
	for range 2 {
		if _, err := s.scores([]int64{1, 2}, []int64{3, 4}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := v2.ModelInfer(testContext(t), inferIDs("", []int64{1}, []int64{2})); err != nil {
		t.Fatal(err)
	}
	post(t, s, "/v1/models/ranker:predict", `{"instances":[{"user":1,"movie":3},{"user":1,"movie":4},{"user":1,"movie":5}]}`)
	post(t, s, "/v1/models/ranker:predict", `{"instances":[{"user":"x","movie":3}]}`)
	post(t, s, "/v1/models/whatever:predict", `{"instances":[]}`)
	other := request([]int64{1}, []int64{2})
	other.ModelSpec = tfserving.Spec("made-up", 0)
	if _, err := s.predict.Predict(testContext(t), other); status.Code(err) != codes.NotFound {
		t.Fatal(err)
	}
	_, after := get(t, s, path)
	for series, want := range map[string]float64{
		`:tensorflow:serving:request_count{model_name="ranker",signature_name="serving_default",status="OK"}`:                                        4,
		`:tensorflow:serving:request_count{model_name="ranker",signature_name="serving_default",status="INVALID_ARGUMENT"}`:                          1,
		`:tensorflow:serving:request_count{model_name="",signature_name="serving_default",status="NOT_FOUND"}`:                                       2,
		`:tensorflow:serving:request_latency_count{API="Predict",entrypoint="GRPC",model_name="ranker",signature_name="serving_default"}`:            2,
		`:tensorflow:serving:request_latency_count{API="Predict",entrypoint="REST",model_name="ranker",signature_name="serving_default"}`:            1,
		`:tensorflow:serving:request_latency_count{API="ModelInfer",entrypoint="GRPC",model_name="ranker",signature_name="serving_default"}`:         1,
		`:tensorflow:serving:request_latency_bucket{API="Predict",entrypoint="GRPC",model_name="ranker",signature_name="serving_default",le="+Inf"}`: 2,
		`:tensorflow:serving:request_example_count_total{model_name="ranker"}`:                                                                       8,
		`:tensorflow:serving:request_example_counts_count{model_name="ranker"}`:                                                                      4,
	} {
		if got := sample(t, after, series) - sample(t, before, series); got != want {
			t.Errorf("%s grew by %v, want %v", series, got, want)
		}
	}
	if strings.Contains(after, "made-up") || strings.Contains(after, "whatever") {
		t.Errorf("names that callers make up are shown:\n%s", after)
	}
	elsewhere := w.serve("c7", func(c *modelserver.Config) {
		c.MonitoringConfigFile = textFile(t, `prometheus_config { enable: true path: "/m" }`)
	})
	off := w.serve("c8", func(c *modelserver.Config) {
		c.MonitoringConfigFile = textFile(t, `prometheus_config { path: "/m" }`)
	})
	for _, tc := range []struct {
		s    *served
		path string
		want int
	}{{elsewhere, "/m", 200}, {elsewhere, path, 400}, {off, "/m", 400}, {off, path, 400}} {
		if code, body := get(t, tc.s, tc.path); code != tc.want {
			t.Errorf("%s at %s: %d %s, want %d", tc.path, tc.s.name, code, body, tc.want)
		}
	}
}

// sample is the value of a series in Prometheus' text, 0 where it is not.
func sample(t *testing.T, text, series string) (v float64) {
	t.Helper()
	found := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(series) + " (.+)$").FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	decode(t, series, []byte(found[1]), &v)
	return v
}

// A file that a flag names and that cannot be taken ends the start, with the reason.
func TestWrongMonitoringConfig(t *testing.T) {
	for text, says := range map[string]string{
		`prometheus_config { enable: maybe }`:                   "is no MonitoringConfig in text form",
		`prometheus_config { enable: true path: "metrics" }`:    "leave it out for /monitoring/prometheus/metrics",
		`prometheus_config { enable: true path: "/readyz" }`:    "leave it out",
		`prometheus_config { enable: true path: "/v1/models" }`: "leave it out",
		`prometheus_config { enable: true path: "/v2" }`:        "leave it out",
	} {
		_, err := modelserver.New(modelserver.Config{Container: "c", MonitoringConfigFile: textFile(t, text)}, services.Env{})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	if _, err := modelserver.New(modelserver.Config{Container: "c", MonitoringConfigFile: "/nowhere"}, services.Env{}); err == nil || !strings.Contains(err.Error(), "--monitoring-config-file") {
		t.Errorf("no file: %v", err)
	}
}
