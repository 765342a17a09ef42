package modelserver

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"
)

// monitoringPath is where TensorFlow Serving shows its metrics unless it is told otherwise.
const monitoringPath = "/monitoring/prometheus/metrics"

// monitoring are the metrics that TensorFlow Serving's dashboards ask for, by its names, beside those of
// this program. A nil one counts nothing.
type monitoring struct {
	path    string
	handler http.Handler

	requests *prometheus.CounterVec   // model_name, status, signature_name
	latency  *prometheus.HistogramVec // microseconds, by model_name, API, entrypoint, signature_name
	examples *prometheus.CounterVec   // model_name
	batches  *prometheus.HistogramVec // examples of a request, by model_name
	warmUps  *prometheus.HistogramVec // microseconds of a recorded request, by model_path, status
}

// newMonitoring reads a MonitoringConfig; nil: it asks for nothing.
func newMonitoring(file string) (*monitoring, error) {
	if file == "" {
		return nil, nil
	}
	config := &config_go_proto.MonitoringConfig{}
	if _, err := readText("--monitoring-config-file", file, config); err != nil {
		return nil, err
	}
	if !config.GetPrometheusConfig().GetEnable() {
		return nil, nil
	}
	m := &monitoring{path: config.GetPrometheusConfig().GetPath()}
	if m.path == "" {
		m.path = monitoringPath
	}
	if !strings.HasPrefix(m.path, "/") || m.path == readyPath || strings.HasPrefix(m.path, "/v1/") || m.path == "/v2" || strings.HasPrefix(m.path, "/v2/") {
		return nil, fmt.Errorf("--monitoring-config-file: the path %q is none, or that of something else; leave it out for %s", m.path, monitoringPath)
	}
	reg := prometheus.NewRegistry()
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: ":tensorflow:serving:request_count", Help: "The total number of requests."}, []string{"model_name", "status", "signature_name"})
	m.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: ":tensorflow:serving:request_latency", Help: "Distribution of wall time (in microseconds).",
		Buckets: prometheus.ExponentialBuckets(10, 1.8, 33)}, []string{"model_name", "API", "entrypoint", "signature_name"})
	m.examples = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: ":tensorflow:serving:request_example_count_total", Help: "The total number of tensorflow.Examples."}, []string{"model_name"})
	m.batches = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: ":tensorflow:serving:request_example_counts", Help: "The number of tensorflow.Examples per request.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 20)}, []string{"model_name"})
	m.warmUps = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: ":tensorflow:serving:model_warmup_latency", Help: "Latency (in microseconds) of replaying one warm-up request.",
		Buckets: prometheus.ExponentialBuckets(10, 1.8, 33)}, []string{"model_path", "status"})
	reg.MustRegister(m.requests, m.latency, m.examples, m.batches, m.warmUps)
	m.handler = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	return m, nil
}

// serves says whether a request asks for the metrics.
func (m *monitoring) serves(r *http.Request) bool {
	return m != nil && r.Method == http.MethodGet && r.URL.Path == m.path
}

// signature is how a request's signature is counted: what is refused may bear any name that callers make up.
func signature(name string, code codes.Code) string {
	switch {
	case name == "" || name == tfserving.DefaultSignature:
		return tfserving.DefaultSignature
	case code == codes.OK && rowSignature(name) == "":
		return name // of an output
	}
	return rowSignature(name)
}

// count notes one request for a signature of a model, and how many rows it was answered about.
func (m *monitoring) count(c caller, model, signature string, code codes.Code, took time.Duration, rows int) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(model, for_core_protos_go_proto.Code(code).String(), signature).Inc()
	if code != codes.OK {
		return
	}
	m.latency.WithLabelValues(model, c.api, c.entrypoint, signature).Observe(float64(took.Microseconds()))
	m.examples.WithLabelValues(model).Add(float64(rows))
	m.batches.WithLabelValues(model).Observe(float64(rows))
}

// warmed notes a recorded request that was replayed.
func (m *monitoring) warmed(folder string, code codes.Code, took time.Duration) {
	if m != nil {
		m.warmUps.WithLabelValues(folder, for_core_protos_go_proto.Code(code).String()).Observe(float64(took.Microseconds()))
	}
}
