package otlp

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/testenv/collector"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// process is one that exports.
type process struct {
	*Export
	reg    *prometheus.Registry
	log    *slog.Logger
	tracer trace.Tracer
	stderr *bytes.Buffer
}

func started(t *testing.T, cfg Config) *process {
	t.Helper()
	p := &process{reg: prometheus.NewRegistry(), stderr: new(bytes.Buffer)}
	// The handler serialises writes; the buffer is read after Close alone.
	own := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	whose := Resource("trainer")
	var err error
	if p.Export, err = Start(t.Context(), cfg, whose, p.reg, own); err != nil {
		t.Fatal(err)
	}
	p.log = p.Logger(own)
	opts := []sdktrace.TracerProviderOption{sdktrace.WithResource(whose)}
	if s := p.Spans(); s != nil {
		opts = append(opts, sdktrace.WithSpanProcessor(s))
	}
	p.tracer = sdktrace.NewTracerProvider(opts...).Tracer("test")
	return p
}

// became is how much of a signal came to an end.
func (p *process) became(t *testing.T, signal, outcome string) float64 {
	t.Helper()
	all, err := p.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			var s, o string
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "signal":
					s = l.GetValue()
				case "outcome":
					o = l.GetValue()
				}
			}
			if f.GetName() == "monolith_otlp_items_total" && s == signal && o == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("nothing counts %s of %s", outcome, signal)
	return 0
}

// TestEverySignalArrives ends a span, counts something and logs: the collector has all of it
// once the process is over, and what the process's own log leaves out is not sent either.
func TestEverySignalArrives(t *testing.T) {
	c := collector.Start(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=trainer-7")
	p := started(t, Config{Endpoint: c.Endpoint})
	learnt := prometheus.NewCounter(prometheus.CounterOpts{Name: "monolith_test_total", Help: "x"})
	p.reg.MustRegister(learnt)
	learnt.Add(3)
	_, span := p.tracer.Start(t.Context(), "step")
	p.log.InfoContext(trace.ContextWithSpan(context.Background(), span), "learnt", "records", 3)
	span.End()
	p.log.Debug("too fine")
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.Services(); len(got) != 1 || got[0] != "trainer" {
		t.Errorf("the collector heard of %v", got)
	}
	if got := c.Spans(); len(got) != 1 || got[0].GetName() != "step" {
		t.Errorf("spans: %v", got)
	}
	if got := c.Metrics()["monolith_test_total"].GetSum().GetDataPoints(); len(got) != 1 || got[0].GetAsDouble() != 3 {
		t.Errorf("the counter: %v", got)
	}
	got := c.Records()
	if len(got) != 1 || got[0].GetBody().GetStringValue() != "learnt" || !bytes.Equal(got[0].GetTraceId(), c.Spans()[0].GetTraceId()) {
		t.Errorf("log records: %v", got)
	}
	if own := p.stderr.String(); !strings.Contains(own, "learnt") || strings.Contains(own, "too fine") {
		t.Errorf("standard error: %s", own)
	}
	if sent := p.became(t, "traces", "sent"); sent != 1 {
		t.Errorf("%v spans were sent", sent)
	}
}

// TestCollectorThatHangs has a collector take calls and answer none: whoever ends spans and
// logs never waits, the process ends, and each item is counted once.
func TestCollectorThatHangs(t *testing.T) {
	c := collector.Start(t)
	c.Hang()
	p := started(t, Config{Endpoint: c.Endpoint})
	_, first := p.tracer.Start(t.Context(), "first")
	first.End()
	wait.For(t, "the first call to hang", func() bool { return c.Heard() > 0 })
	const n = 3 * queueRoom
	for range n - 1 {
		_, span := p.tracer.Start(t.Context(), "step")
		span.End() // returns although nobody takes anything
		p.log.Info("step")
	}
	if p.became(t, "traces", "dropped") == 0 || p.became(t, "logs", "dropped") == 0 {
		t.Error("nothing was dropped, though no queue holds that much")
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if sent, failed, dropped := p.became(t, "traces", "sent"), p.became(t, "traces", "failed"), p.became(t, "traces", "dropped"); sent != 0 || failed+dropped != n {
		t.Errorf("of %d spans %v were sent, %v failed and %v were dropped", n, sent, failed, dropped)
	}
	if !strings.Contains(p.stderr.String(), "the OTLP collector does not take telemetry") {
		t.Errorf("standard error does not tell: %s", p.stderr)
	}
	p.log.Info("later") // a role's last words, behind the end
	_, late := p.tracer.Start(t.Context(), "late")
	late.End()
	if got := p.became(t, "traces", "dropped") + p.became(t, "traces", "failed"); got != n+1 {
		t.Errorf("what ends late is not counted: %v", got)
	}
}

// TestNobodyAsked exports nothing, and measures nothing of it.
func TestNobodyAsked(t *testing.T) {
	p := started(t, Config{})
	p.log.Info("alone")
	if p.Spans() != nil {
		t.Error("spans are taken for nobody")
	}
	if n, err := testutil.GatherAndCount(p.reg); n != 0 || err != nil {
		t.Errorf("%d metrics, %v", n, err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestProbe tells a collector that answers from one that hangs, of each signal, and leaves nothing
// but a record that says what it is.
func TestProbe(t *testing.T) {
	c := collector.Start(t)
	for _, a := range Probe(t.Context(), Config{Endpoint: c.Endpoint}, wait.Patience) {
		if a.Err != nil {
			t.Errorf("%s: %v", a.Signal, a.Err)
		}
	}
	if n := c.Heard(); n != len(signals) || len(c.Spans()) != 0 || len(c.Metrics()) != 0 || len(c.Records()) != 1 {
		t.Errorf("%d calls left %v, %v, %v", n, c.Spans(), c.Metrics(), c.Records())
	}
	c.Hang()
	answers := Probe(t.Context(), Config{Endpoint: c.Endpoint}, 50*time.Millisecond)
	for _, a := range answers {
		if a.Err == nil {
			t.Errorf("%s of a collector that hangs is well", a.Signal)
		}
	}
	if len(answers) != len(signals) {
		t.Errorf("%v", answers)
	}
}

func TestSettings(t *testing.T) {
	for _, tc := range []struct {
		name     string
		env      map[string]string
		endpoint string
		on       string
		wrong    string // part of the refusal
	}{
		{"none", nil, "", "", ""},
		{"all", nil, "http://c:4317", "traces metrics logs", ""},
		{"one by its own variable", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c:4317"}, "", "traces", ""},
		{"one left out", map[string]string{"OTEL_LOGS_EXPORTER": "none"}, "http://c:4317", "traces metrics", ""},
		{"switched off", map[string]string{"OTEL_SDK_DISABLED": "true"}, "http://c:4317", "", ""},
		{"no scheme", nil, "c:4317", "traces metrics logs", "--otlp-endpoint"},
		{"a password", nil, "http://me:secret@c:4317", "traces metrics logs", "OTEL_EXPORTER_OTLP_HEADERS"},
		{"HTTP", map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http://c:4318", "traces metrics logs", "say grpc"},
		{"HTTP of one", map[string]string{"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/json"}, "http://c:4318", "traces metrics logs", "say grpc"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, value := range tc.env {
				t.Setenv(name, value)
			}
			cfg := Config{Endpoint: tc.endpoint}
			if on := strings.Join(cfg.signals(), " "); on != tc.on {
				t.Errorf("exported: %q, want %q", on, tc.on)
			}
			err := cfg.Validate()
			if (err != nil) != (tc.wrong != "") || err != nil && (errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), tc.wrong) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("Validate = %v", err)
			}
			if err == nil {
				return
			}
			reg := prometheus.NewRegistry()
			if _, err := Start(t.Context(), cfg, Resource("test"), reg, slog.New(slog.DiscardHandler)); !errors.Is(err, flags.ErrUsage) || strings.Count(err.Error(), flags.ErrUsage.Error()) != 1 {
				t.Errorf("Start = %v", err)
			}
		})
	}
}
