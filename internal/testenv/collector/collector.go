// Package collector is an OpenTelemetry collector for tests: it takes OTLP over gRPC by the
// services that the protocol's own module generates, and keeps what it is sent.
package collector

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	logpb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricpb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector listens on loopback until the test ends.
type Collector struct {
	Endpoint string // http://127.0.0.1:port

	mu       sync.Mutex
	hangs    bool
	heard    int
	services []string
	spans    []*tracepb.Span
	metrics  []*metricpb.Metric
	records  []*logpb.LogRecord
}

// Start listens for the rest of the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Endpoint: "http://" + ln.Addr().String()}
	s := grpc.NewServer()
	traces.RegisterTraceServiceServer(s, traceService{c: c})
	metrics.RegisterMetricsServiceServer(s, metricService{c: c})
	logs.RegisterLogsServiceServer(s, logService{c: c})
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// Hang has the collector take every call from now on and answer none.
func (c *Collector) Hang() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangs = true
}

// Heard is how many calls came in.
func (c *Collector) Heard() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}

// Services are those that sent anything, sorted.
func (c *Collector) Services() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(c.services)))
}

// Spans are all that came.
func (c *Collector) Spans() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Metrics are all that came, by name; of several of one name the last.
func (c *Collector) Metrics() map[string]*metricpb.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	named := map[string]*metricpb.Metric{}
	for _, m := range c.metrics {
		named[m.GetName()] = m
	}
	return named
}

// Records are all log records that came.
func (c *Collector) Records() []*logpb.LogRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.records)
}

// take waits while the collector hangs, else keeps what keep does.
func (c *Collector) take(ctx context.Context, keep func()) error {
	c.mu.Lock()
	c.heard++
	hangs := c.hangs
	if !hangs {
		keep()
	}
	c.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	return ctx.Err()
}

// from notes who sent something; c.mu is held.
func (c *Collector) from(r *resourcepb.Resource) {
	for _, a := range r.GetAttributes() {
		if a.GetKey() == "service.name" {
			c.services = append(c.services, a.GetValue().GetStringValue())
		}
	}
}

type traceService struct {
	traces.UnimplementedTraceServiceServer
	c *Collector
}

func (s traceService) Export(ctx context.Context, req *traces.ExportTraceServiceRequest) (*traces.ExportTraceServiceResponse, error) {
	return &traces.ExportTraceServiceResponse{}, s.c.take(ctx, func() {
		for _, r := range req.GetResourceSpans() {
			s.c.from(r.GetResource())
			for _, scope := range r.GetScopeSpans() {
				s.c.spans = append(s.c.spans, scope.GetSpans()...)
			}
		}
	})
}

type metricService struct {
	metrics.UnimplementedMetricsServiceServer
	c *Collector
}

func (s metricService) Export(ctx context.Context, req *metrics.ExportMetricsServiceRequest) (*metrics.ExportMetricsServiceResponse, error) {
	return &metrics.ExportMetricsServiceResponse{}, s.c.take(ctx, func() {
		for _, r := range req.GetResourceMetrics() {
			s.c.from(r.GetResource())
			for _, scope := range r.GetScopeMetrics() {
				s.c.metrics = append(s.c.metrics, scope.GetMetrics()...)
			}
		}
	})
}

type logService struct {
	logs.UnimplementedLogsServiceServer
	c *Collector
}

func (s logService) Export(ctx context.Context, req *logs.ExportLogsServiceRequest) (*logs.ExportLogsServiceResponse, error) {
	return &logs.ExportLogsServiceResponse{}, s.c.take(ctx, func() {
		for _, r := range req.GetResourceLogs() {
			s.c.from(r.GetResource())
			for _, scope := range r.GetScopeLogs() {
				s.c.records = append(s.c.records, scope.GetLogRecords()...)
			}
		}
	})
}
