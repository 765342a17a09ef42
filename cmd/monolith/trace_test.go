package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/testenv/collector"
	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// none is the parent of a span that has none.
const none = "0000000000000000"

// opsSpan is one line of traces.jsonl.
type opsSpan struct {
	Name        string
	SpanContext struct{ TraceID, SpanID string }
	Parent      struct{ TraceID, SpanID string }
}

// TestOneTrace follows one rating from whoever sent it to the rows that are served, over
// Kafka, the row protocol and JetStream: one trace, each span the child of the one that
// caused it, in the file and at an OpenTelemetry collector. A rating that nobody samples leaves no span.
func TestOneTrace(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Replicas = 1
	collected := collector.Start(t)
	cfg.OTLP.Endpoint = collected.Endpoint
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "50") // milliseconds
	w := opsServe(t, cfg)
	w.rate(50)
	w.learnt()

	ctx, span := w.Tracer("test", 1).Start(w.ctx, "rating", trace.WithNewRoot())
	root := span.SpanContext()
	r := rating.Rating{User: 5, Movie: 9, Rating: 5, Timestamp: 1_700_000_000}
	at := w.put(string(r.AppendJSON(nil)), map[string]string{rating.HeaderTrace: tracectx.Of(ctx)})
	client, err := scenario.Dial(w.entry)
	w.must("dial the entry", err)
	if _, err := predictPairs(client, ctx, host.ModelName, "", []int64{5}, []int64{9}); err != nil {
		t.Fatalf("Predict: %v", err)
	}
	w.must("hang up", client.Close())
	span.End()
	w.learnt()
	w.agree()
	w.halt()

	f, err := os.Open(w.TraceFile)
	w.must("open the traces", err)
	defer f.Close()
	byID := map[string]opsSpan{}
	named := map[string][]opsSpan{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s opsSpan
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatalf("traces.jsonl: %v in %s", err, lines.Bytes())
		}
		if s.SpanContext.TraceID != root.TraceID().String() {
			t.Errorf("span %s belongs to trace %s, nobody sampled that", s.Name, s.SpanContext.TraceID)
			continue
		}
		byID[s.SpanContext.SpanID] = s
		named[s.Name] = append(named[s.Name], s)
	}
	w.must("read the traces", lines.Err())
	var names []string
	for name := range named {
		names = append(names, name)
	}
	slices.Sort(names)
	// Every shard gets the range of record `at`; whoever holds user 5, movie 9 or a dense
	// variable publishes and serves it.
	for child, parent := range map[string]string{
		"trainer.step": "rating", "ps.apply": "trainer.step", "ps.flush": "ps.apply", "modelserver.apply_delta": "ps.flush", "modelserver.predict": "rating",
	} {
		if len(named[child]) == 0 {
			t.Errorf("record %d left no span %s; there are %v", at, child, names)
		}
		for _, s := range named[child] {
			if got := byID[s.Parent.SpanID].Name; got != parent {
				t.Errorf("%s is a child of %q, not of %s", child, got, parent)
			}
		}
	}
	if n := len(named["ps.apply"]); n != cfg.Shards {
		t.Errorf("%d shards applied the rating, there are %d", n, cfg.Shards)
	}
	collectedAlike(t, collected, byID)
}

// collectedAlike holds that a collector has the spans of the file, metrics and log records.
func collectedAlike(t *testing.T, c *collector.Collector, written map[string]opsSpan) {
	t.Helper()
	exported := map[string]string{} // parents by span
	for _, s := range c.Spans() {
		exported[hex.EncodeToString(s.GetSpanId())] = hex.EncodeToString(s.GetParentSpanId())
	}
	for id, s := range written {
		if parent, ok := exported[id]; !ok || parent != s.Parent.SpanID && s.Parent.SpanID != none {
			t.Errorf("the collector has %s under the parent %q (%v), the file under %q", s.Name, parent, ok, s.Parent.SpanID)
		}
	}
	if len(exported) != len(written) {
		t.Errorf("the collector has %d spans, the file %d", len(exported), len(written))
	}
	for _, name := range []string{"monolith_trainer_samples_total", "monolith_modelserver_predict_total"} {
		if c.Metrics()[name] == nil {
			t.Errorf("the collector has no metric %s", name)
		}
	}
	if len(c.Records()) == 0 {
		t.Error("the collector has no log record")
	}
}
