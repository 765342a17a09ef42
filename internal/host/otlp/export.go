package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	prombridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otellog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/monolith-go/monolith/internal/process/flags"
)

// flushTime bounds what a process waits for the collector at its end.
const flushTime = 2 * time.Second

// Export is a process's way to its collector. Its zero value sends nothing.
type Export struct {
	spans   *spanQueue
	records *recordQueue
	logs    *sdklog.LoggerProvider // into records
	metrics *sdkmetric.MeterProvider
}

// Resource says whose telemetry it is: the service and its build, this process of it, and
// what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say, which count before it.
func Resource(service string) *resource.Resource {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	own := resource.NewSchemaless(attribute.String("service.name", service), attribute.String("service.namespace", "monolith"),
		attribute.String("service.version", flags.Version()), attribute.String("service.instance.id", fmt.Sprintf("%s-%d", host, os.Getpid())))
	told := resource.NewSchemaless(resource.Environment().Attributes()...)
	whole, err := resource.Merge(own, told)
	if err != nil { // of schemas, of which there are none
		return own
	}
	return whole
}

// Start begins to export what cfg asks for, under a resource; reg holds all metrics. It does
// not wait for the collector. log is the process's, to standard error; Close ends it.
func Start(ctx context.Context, cfg Config, whose *resource.Resource, reg *prometheus.Registry, log *slog.Logger) (e *Export, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	e = &Export{}
	on := cfg.signals()
	if len(on) == 0 {
		return e, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("export telemetry: %w", err), e.Close(ctx))
			e = nil
		}
	}()
	counts := newCounters()
	if err := reg.Register(counts); err != nil {
		return e, err
	}
	told := func(signal string) tally { return newTally(signal, counts, log) }
	if slices.Contains(on, "traces") {
		to, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(cfg.endpoint("traces")))
		if err != nil {
			return e, err
		}
		e.spans = &spanQueue{newQueue(told("traces"), to.ExportSpans), to}
	}
	if slices.Contains(on, "metrics") {
		to, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpointURL(cfg.endpoint("metrics")))
		if err != nil {
			return e, err
		}
		every := sdkmetric.NewPeriodicReader(counted{to, told("metrics")}, sdkmetric.WithProducer(prombridge.NewMetricProducer(prombridge.WithGatherer(reg))))
		e.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(every), sdkmetric.WithResource(whose))
	}
	if slices.Contains(on, "logs") {
		to, err := otlploggrpc.New(ctx, otlploggrpc.WithEndpointURL(cfg.endpoint("logs")))
		if err != nil {
			return e, err
		}
		e.records = &recordQueue{newQueue(told("logs"), to.Export), to, log.Handler()}
		e.logs = sdklog.NewLoggerProvider(sdklog.WithProcessor(e.records), sdklog.WithResource(whose))
	}
	return e, nil
}

// Spans takes finished spans; nil: none are exported.
func (e *Export) Spans() sdktrace.SpanProcessor {
	if e.spans == nil {
		return nil
	}
	return e.spans
}

// Logger writes where log does, and to the collector.
func (e *Export) Logger(log *slog.Logger) *slog.Logger {
	if e.logs == nil {
		return log
	}
	return slog.New(slog.NewMultiHandler(log.Handler(), otelslog.NewHandler("monolith", otelslog.WithLoggerProvider(e.logs))))
}

// Close sends what waits, for two seconds at most; what the collector does not take then is
// counted and lost, which is no error.
func (e *Export) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	var all sync.WaitGroup
	errs := make([]error, 3)
	if e.metrics != nil {
		all.Go(func() { errs[0] = e.metrics.Shutdown(ctx) })
	}
	if e.spans != nil {
		all.Go(func() { errs[1] = e.spans.Shutdown(ctx) })
	}
	if e.records != nil { // itself: a provider that is late leaves its processors running
		all.Go(func() { errs[2] = e.records.Shutdown(ctx) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// spanQueue is a queue of spans.
type spanQueue struct {
	*queue[sdktrace.ReadOnlySpan]
	to sdktrace.SpanExporter
}

func (*spanQueue) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

func (q *spanQueue) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		q.add(s)
	}
}

// ForceFlush does nothing: spans go within a second.
func (*spanQueue) ForceFlush(context.Context) error { return nil }

func (q *spanQueue) Shutdown(ctx context.Context) error {
	q.stop(ctx)
	return q.to.Shutdown(ctx)
}

// recordQueue is a queue of log records.
type recordQueue struct {
	*queue[sdklog.Record]
	to    sdklog.Exporter
	level slog.Handler // which decides what is logged
}

// Enabled says what the process's own log would.
func (q *recordQueue) Enabled(ctx context.Context, p sdklog.EnabledParameters) bool {
	return q.level.Enabled(ctx, slog.Level(p.Severity-otellog.SeverityInfo))
}

func (q *recordQueue) OnEmit(_ context.Context, r *sdklog.Record) error {
	q.add(r.Clone())
	return nil
}

// ForceFlush does nothing: records go within a second.
func (*recordQueue) ForceFlush(context.Context) error { return nil }

func (q *recordQueue) Shutdown(ctx context.Context) error {
	q.stop(ctx)
	return q.to.Shutdown(ctx)
}

// counted is an exporter of metrics whose failures are counted and told here.
type counted struct {
	sdkmetric.Exporter
	tally tally
}

func (c counted) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	c.tally.sent(1, c.Exporter.Export(ctx, m))
	return nil
}
