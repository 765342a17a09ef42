package ps

import (
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

func TestOneTraceFromApplyToDelta(t *testing.T) {
	w := newWorld(t)
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	s := w.server(w.config())
	s.tracer = tp.Tracer("test")
	p := w.run(s)
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1)) // without a trace
	const id = "0af7651916cd43dd8448eb211c80319c"
	r := pstest.Teach(0, 0, 10, 20, 1, 2)
	r.Traceparent = "00-" + id + "-b7ad6b7169203331-01"
	p.teach(r)
	unsampled := pstest.Teach(0, 0, 20, 30, 1, 3)
	unsampled.Traceparent = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203331-00"
	p.teach(unsampled)
	traced := 0
	for _, m := range p.settled().seen {
		if m.Traceparent == "" || strings.HasSuffix(m.Subject, ".dense") {
			continue
		}
		traced++
		if len(m.Traceparent) != len(r.Traceparent) || m.Traceparent[3:35] != id {
			t.Errorf("delta %d carries %s, want trace %s", m.Seq, m.Traceparent, id)
		}
		if !slices.ContainsFunc(decoded(t, m).GetRanges(), func(r *delta.Range) bool { return r.From <= 10 && r.To >= 20 }) {
			t.Errorf("delta %d carries the trace and not its range", m.Seq)
		}
	}
	if traced != 1 {
		t.Errorf("%d row deltas carry a trace, want one", traced)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	parents := map[string]string{}
	ids := map[string]string{}
	for _, sp := range spans.Ended() {
		if sp.SpanContext().TraceID().String() == id {
			parents[sp.Name()] = sp.Parent().SpanID().String()
			ids[sp.Name()] = sp.SpanContext().SpanID().String()
		}
		for _, a := range sp.Attributes() {
			if a == attribute.Int64("from", 20) {
				t.Error("an unsampled apply was recorded")
			}
		}
	}
	if parents["ps.apply"] != "b7ad6b7169203331" || parents["ps.flush"] != ids["ps.apply"] {
		t.Errorf("spans %v with parents %v: want ps.apply below the trainer's and ps.flush below ps.apply", ids, parents)
	}
}

var _ bus.Deltas = hookedDeltas{}
