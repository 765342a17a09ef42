package otlp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otellog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Answer is what a signal's endpoint said.
type Answer struct {
	Signal, Endpoint string
	Err              error // nil: it takes telemetry
}

// Switch is the variable that says where the signal goes, none among others.
func (a Answer) Switch() string { return "OTEL_" + strings.ToUpper(a.Signal) + "_EXPORTER" }

// Probe asks the endpoint of each signal that is exported, by an empty call; logs know none,
// so they get one record that says what it is. ctx bounds each answer.
func Probe(ctx context.Context, cfg Config, patience time.Duration) (answers []Answer) {
	for _, signal := range cfg.signals() {
		asked, cancel := context.WithTimeout(ctx, patience)
		answers = append(answers, Answer{signal, cfg.endpoint(signal), probes[signal](asked, cfg.endpoint(signal))})
		cancel()
	}
	return answers
}

var probes = map[string]func(ctx context.Context, endpoint string) error{"traces": probeTraces, "metrics": probeMetrics, "logs": probeLogs}

func probeTraces(ctx context.Context, endpoint string) error {
	c := otlptracegrpc.NewClient(otlptracegrpc.WithEndpointURL(endpoint))
	if err := c.Start(ctx); err != nil {
		return err
	}
	return errors.Join(c.UploadTraces(ctx, nil), c.Stop(context.WithoutCancel(ctx)))
}

func probeMetrics(ctx context.Context, endpoint string) error {
	e, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpointURL(endpoint))
	if err != nil {
		return err
	}
	return errors.Join(e.Export(ctx, &metricdata.ResourceMetrics{}), e.Shutdown(context.WithoutCancel(ctx)))
}

func probeLogs(ctx context.Context, endpoint string) error {
	e, err := otlploggrpc.New(ctx, otlploggrpc.WithEndpointURL(endpoint))
	if err != nil {
		return err
	}
	var r sdklog.Record
	r.SetTimestamp(time.Now())
	r.SetSeverity(otellog.SeverityDebug)
	r.SetBody(attribute.StringValue("monolith doctor asks whether logs arrive"))
	if err := e.Export(ctx, []sdklog.Record{r}); err != nil {
		return errors.Join(fmt.Errorf("send one record: %w", err), e.Shutdown(context.WithoutCancel(ctx)))
	}
	return e.Shutdown(context.WithoutCancel(ctx))
}
