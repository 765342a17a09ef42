package ps

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// TestLargePublicationsAreChunked checks that chunks stay small, that together they
// hold every row once, and that the ranges stand on the last one alone.
func TestLargePublicationsAreChunked(t *testing.T) {
	f, err := newSchema(Config{Job: job, Shards: 1}, counting())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 1000, 28672, 28673, 200_000} {
		h := &dirtyRows{epoch: 3, step: 9, ranges: []*delta.Range{{Partition: 1, From: 5, To: 10, Epoch: 2}}}
		user := dirtyTable{table: "user", dim: 2, values: make([]float32, 2*n)}
		movie := dirtyTable{table: "movie", dim: 3}
		for i := range n {
			user.ids = append(user.ids, int64(i)-10)
			user.values[2*i] = float32(i)
			movie.removed = append(movie.removed, int64(i))
		}
		if n > 0 {
			h.rows = []dirtyTable{user, movie}
		}
		var ids, removed []int64
		ds := h.rowDeltas(f)
		for i, d := range ds {
			b, err := proto.Marshal(d)
			if err != nil || len(b) >= 512<<10 {
				t.Errorf("%d rows: chunk %d has %d bytes, %v", n, i, len(b), err)
			}
			if int(d.Chunk) != i || int(d.Chunks) != len(ds) || d.Epoch != 3 || d.Step != 9 || (len(d.Ranges) == 1) != (i == len(ds)-1) {
				t.Errorf("%d rows: chunk %d says %d of %d, with %d ranges", n, i, d.Chunk, d.Chunks, len(d.Ranges))
			}
			for _, r := range d.Rows {
				v := unfloats(r.Values)
				if len(v) != len(r.Ids)*int(r.Dim) {
					t.Fatalf("%d rows: %d values for %d ids", n, len(v), len(r.Ids))
				}
				for j, id := range r.Ids {
					if v[j*int(r.Dim)] != float32(int64(id)+10) {
						t.Fatalf("%d rows: row %d got the values of another", n, int64(id))
					}
					ids = append(ids, int64(id))
				}
				for _, id := range r.Removed {
					removed = append(removed, int64(id))
				}
			}
		}
		if !slices.Equal(ids, user.ids) || !slices.Equal(removed, movie.removed) {
			t.Errorf("%d rows: the chunks hold %d and drop %d", n, len(ids), len(removed))
		}
		groups, err := drafts("msync.x", "id", "", ds)
		if err != nil {
			t.Fatal(err)
		}
		total, seen := 0, map[string]bool{}
		for _, g := range groups {
			size := 0
			for _, d := range g {
				size += len(d.Data)
				seen[d.ID] = true
			}
			total += len(g)
			if size > groupBytes {
				t.Errorf("%d rows: a group of %d bytes", n, size)
			}
		}
		if total != len(ds) || len(seen) != len(ds) {
			t.Errorf("%d rows: %d drafts with %d ids for %d chunks", n, total, len(seen), len(ds))
		}
	}
}

func TestDenseGoesOutWithEveryNthPublication(t *testing.T) {
	f, err := newSchema(Config{Job: job, Shards: 1}, counting())
	if err != nil {
		t.Fatal(err)
	}
	s := newState(f)
	if err := s.load(nil); err != nil {
		t.Fatal(err)
	}
	s.resume(1, 0)
	p := &publisher{schema: f}
	var got []bool
	var next int64
	for _, learnt := range []bool{false, true, true, true, true, true, false, false} {
		if learnt {
			r := teach(0, 0, next, next+1, 1, 1)
			r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{1}}}
			if _, err := s.apply(t.Context(), r, ""); err != nil {
				t.Fatal(err)
			}
			next++
		}
		h := s.collectDirty(p.due(2))
		got = append(got, h != nil && len(h.dense) > 0)
	}
	// Fresh variables at once; then with every second; then, in the pause, what is left.
	if want := []bool{true, false, true, false, true, false, true, false}; !reflect.DeepEqual(got, want) {
		t.Errorf("variables went out %v, want %v", got, want)
	}
}

func TestRangesOfOnePartitionAreJoined(t *testing.T) {
	s := new(state)
	for _, r := range []*delta.Range{
		{Partition: 0, From: 0, To: 5, Epoch: 1}, {Partition: 1, From: 0, To: 2, Epoch: 1}, {Partition: 0, From: 5, To: 9, Epoch: 1},
		{Partition: 0, From: 9, To: 12, Epoch: 2}, {Partition: 1, From: 2, To: 3, Epoch: 1}, {Partition: 0, From: 12, To: 13, Epoch: 2},
	} {
		s.addRange(r)
	}
	want := []*delta.Range{{Partition: 0, From: 0, To: 9, Epoch: 1}, {Partition: 1, From: 0, To: 3, Epoch: 1}, {Partition: 0, From: 9, To: 13, Epoch: 2}}
	if !slices.EqualFunc(s.ranges, want, func(a, b *delta.Range) bool { return proto.Equal(a, b) }) {
		t.Errorf("pending %v, want %v", s.ranges, want)
	}
}

func TestOneTraceFromApplyToDelta(t *testing.T) {
	w := newWorld(t)
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	s := w.server(w.config())
	s.tracer = tp.Tracer("test")
	p := w.run(s)
	p.teach(teach(0, 0, 0, 10, 1, 1)) // without a trace
	const id = "0af7651916cd43dd8448eb211c80319c"
	r := teach(0, 0, 10, 20, 1, 2)
	r.Traceparent = "00-" + id + "-b7ad6b7169203331-01"
	p.teach(r)
	unsampled := teach(0, 0, 20, 30, 1, 3)
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
