package main

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// opsSpan is one line of traces.jsonl.
type opsSpan struct {
	Name        string
	SpanContext struct{ TraceID, SpanID string }
	Parent      struct{ TraceID, SpanID string }
}

// TestOneTrace follows one rating from whoever sent it to the rows that are served, over
// Kafka, the row protocol and JetStream: one trace, each span the child of the one that
// caused it. A rating that nobody samples leaves no span.
func TestOneTrace(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Replicas = 1
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
}
