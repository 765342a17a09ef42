package rows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/delta"
)

func testFeed(apply func(*delta.Delta, uint64, time.Time) error, served func(Flush)) *Feed {
	return &Feed{BZID: "b", Job: "j", Shards: 1, Contained: map[uint32]uint64{}, Epochs: map[uint32]uint64{}, Next: 1,
		Apply: apply, Served: served, Metrics: NewMetrics(nil, "c"), Tracer: noop.NewTracerProvider().Tracer(""), Log: slog.New(slog.DiscardHandler)}
}

func FuzzDelta(f *testing.F) {
	for _, d := range []*delta.Delta{
		{Chunks: 1, Rows: []*delta.Rows{{Table: "user", Dim: 2, Ids: []uint64{1, 2}, Values: make([]byte, 16), Removed: []uint64{3}}}},
		{Chunks: 1, Rows: []*delta.Rows{{Table: "movie", Dim: 2, Encoding: delta.Encoding_FP16, Ids: []uint64{1}, Values: make([]byte, 4)}}},
		{Chunks: 1, Rows: []*delta.Rows{{Table: "movie", Dim: 2, Encoding: delta.Encoding_INT8, Scale: 2, Ids: []uint64{1}, Values: make([]byte, 2)}}},
		{Chunks: 1, Rows: []*delta.Rows{{Table: "movie", Dim: 2, Encoding: delta.Encoding_BITS, Scale: 2, Ids: []uint64{1, 2}, Values: []byte{1, 2}}}},
		{Chunks: 1, Rows: []*delta.Rows{{Table: "movie", Dim: 2, Encoding: 7, Ids: []uint64{1}, Values: make([]byte, 2)}}},
		{Chunks: 2, Chunk: 1, Epoch: 3, Dense: []*delta.Variable{{Name: "dense_2/bias", Shape: []uint32{1}, Values: make([]byte, 4)}}},
		{Chunks: 1, Rows: []*delta.Rows{{Table: "user", Dim: 1 << 31, Ids: []uint64{1}}}},
		{Shard: math.MaxUint32}, {Takeover: true},
	} {
		b, err := proto.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ps := newPS(t)
		rows := testFeed(func(d *delta.Delta, seq uint64, at time.Time) error { return ps.Apply(d, seq, uint32(at.Unix())) }, func(Flush) {})
		for seq := range uint64(2) {
			if err := rows.handle(t.Context(), bus.StoredDelta{Seq: seq + 1, Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		for name, tab := range ps.tables {
			all, _, err := tab.Rows(math.MinInt64, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range all {
				for _, v := range r.Values {
					if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
						t.Fatalf("table %s row %d holds %v", name, r.ID, v)
					}
				}
			}
		}
	})
}

// Every outcome of a delta, in one stream.
func TestFeedOutcomes(t *testing.T) {
	var applied []uint64
	var served []Flush
	f := testFeed(func(d *delta.Delta, seq uint64, _ time.Time) error {
		applied = append(applied, seq)
		if d.GetStep() == 666 {
			return errors.New("half of it does not fit")
		}
		return nil
	}, func(x Flush) { served = append(served, x) })
	spans := tracetest.NewInMemoryExporter()
	f.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("")
	f.Contained[0], f.Epochs[0] = 2, 5
	f.need = map[string]uint64{"s": 4}
	f.caught = make(chan struct{})
	const tp = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	send := func(seq uint64, d *delta.Delta) {
		data, err := proto.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.handle(t.Context(), bus.StoredDelta{Seq: seq, Subject: "s", Data: data, Traceparent: tp, Time: time.Unix(int64(seq), 0)}); err != nil {
			t.Fatal(err)
		}
	}
	caught := func() bool {
		select {
		case <-f.caught:
			return true
		default:
			return false
		}
	}
	send(2, &delta.Delta{Epoch: 5, Chunks: 1}) // in the export
	send(3, &delta.Delta{Epoch: 5, Chunks: 1}) // caught up on
	send(3, &delta.Delta{Epoch: 5, Chunks: 1}) // once more
	if len(served) != 0 || caught() {
		t.Fatalf("served %v before it has caught up", served)
	}
	send(4, &delta.Delta{Epoch: 4, Chunks: 1}) // a fenced writer's: caught up all the same
	if !caught() || len(served) != 1 || served[0].Seq != 3 {
		t.Fatalf("caught up: %v, served %v; want the newest one, 3", caught(), served)
	}
	send(5, &delta.Delta{Epoch: 6, Chunks: 3})           // a flush of three chunks
	send(6, &delta.Delta{Epoch: 6, Chunks: 3, Chunk: 1}) //
	send(7, &delta.Delta{Epoch: 6, Chunks: 3, Chunk: 2}) // is served with its last
	send(8, &delta.Delta{Epoch: 6, Chunks: 3, Chunk: 3}) // no such chunk
	send(9, &delta.Delta{Epoch: 6, Step: 666, Chunks: 1})
	if err := f.handle(t.Context(), bus.StoredDelta{Seq: 10, Subject: "s", Data: []byte{0xff}}); err != nil {
		t.Fatal(err)
	}
	if want := []uint64{3, 5, 6, 7, 9}; !slices.Equal(applied, want) {
		t.Errorf("applied %v, want %v", applied, want)
	}
	if want := []Flush{{3, time.Unix(3, 0)}, {7, time.Unix(7, 0)}}; !slices.Equal(served, want) {
		t.Errorf("served %v, want %v", served, want)
	}
	for outcome, want := range map[string]float64{"contained": 1, "fenced": 1, "applied": 4, "malformed": 3} {
		if got := value(t, f.Metrics.deltas.WithLabelValues(outcome)); got != want {
			t.Errorf("%v deltas %s, want %v", got, outcome, want)
		}
	}
	got := spans.GetSpans()
	if len(got) != 8 {
		t.Fatalf("%d spans, want one per message with a trace", len(got))
	}
	for _, s := range got {
		if s.Name != "modelserver.apply_delta" || s.Parent.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || s.Parent.SpanID().String() != "b7ad6b7169203331" {
			t.Errorf("span %s below %s", s.Name, s.Parent.SpanID())
		}
	}
	if !slices.Contains(got[1].Attributes, attribute.Int64("sync.seq", 3)) {
		t.Errorf("attributes %v", got[1].Attributes)
	}
}

// A delta whose chunk is not one of its chunks is no part of any flush.
func TestChunksAreCountedFromZero(t *testing.T) {
	for _, tc := range []struct {
		chunk, chunks uint32
		shard         uint32
		outcome       string
		served        int
	}{{0, 0, 0, "applied", 1}, {0, 1, 0, "applied", 1}, {0, 2, 0, "applied", 0}, {1, 2, 0, "applied", 1}, {1, 1, 0, "malformed", 0}, {2, 2, 0, "malformed", 0}, {3, 2, 0, "malformed", 0},
		{0, 1, MaxShards - 1, "applied", 1}, {0, 1, MaxShards, "malformed", 0}} {
		served := 0
		f := testFeed(func(*delta.Delta, uint64, time.Time) error { return nil }, func(Flush) { served++ })
		d := &delta.Delta{Shard: tc.shard, Chunk: tc.chunk, Chunks: tc.chunks}
		outcome, err := f.take(t.Context(), stored(t, 1, d))
		if err != nil || outcome != tc.outcome || served != tc.served {
			t.Errorf("chunk %d of %d of shard %d: %s, served %d times, %v; want %s, %d", tc.chunk, tc.chunks, tc.shard, outcome, served, err, tc.outcome, tc.served)
		}
	}
}

func TestEpochsThatAreAskedFor(t *testing.T) {
	away := errors.New("away")
	for name, tc := range map[string]struct {
		epoch, newest uint64
		known         bool
		err           error
		outcome       string
		asked         int
	}{
		"seen":         {5, 0, false, nil, "applied", 0},
		"older":        {4, 0, false, nil, "fenced", 0},
		"taken":        {6, 6, true, nil, "applied", 1},
		"taken twice":  {6, 7, true, nil, "applied", 1},
		"not taken":    {6, 5, true, nil, "forged", 1},
		"nobody knows": {6, 0, false, nil, "applied", 1},
		"no answer":    {6, 0, false, away, "", 1},
	} {
		asked := 0
		f := testFeed(func(*delta.Delta, uint64, time.Time) error { return nil }, func(Flush) {})
		f.Epochs[0] = 5
		f.Written = func(context.Context, string, uint32) (uint64, bool, error) {
			asked++
			return tc.newest, tc.known, tc.err
		}
		outcome, err := f.take(t.Context(), stored(t, 1, &delta.Delta{Epoch: tc.epoch, Chunks: 1}))
		if outcome != tc.outcome || !errors.Is(err, tc.err) || asked != tc.asked {
			t.Errorf("%s: %q, %v, asked %d times; want %q, %v, %d", name, outcome, err, asked, tc.outcome, tc.err, tc.asked)
		}
		want := uint64(5)
		if tc.outcome == "applied" {
			want = tc.epoch
		}
		if f.Epochs[0] != want {
			t.Errorf("%s: epoch %d is the newest, want %d", name, f.Epochs[0], want)
		}
	}
}

func stored(t *testing.T, seq uint64, d *delta.Delta) bus.StoredDelta {
	t.Helper()
	data, err := proto.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return bus.StoredDelta{Seq: seq, Data: data}
}

// A version has caught up at the sequence that was the last one of its shards, and at once
// where the export holds that.
func TestHowFarAVersionMustCatchUp(t *testing.T) {
	b := mem.New()
	defer b.Close()
	last := uint64(0)
	for range 3 {
		seq, err := b.Deltas().Publish(t.Context(), bus.DeltaDraft{Subject: bus.DeltaSubject("b", "j", "0"), Expect: bus.Any, Data: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		last = seq
	}
	for next, behind := range map[uint64]bool{1: true, last: true, last + 1: false} {
		f := testFeed(nil, nil)
		f.Bus, f.Next, f.Shards = b.Deltas(), next, 2
		if err := f.FindEnd(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := map[string]uint64{}
		if behind {
			want[f.subject("0")] = last
		}
		caught := false
		select {
		case <-f.caught:
			caught = true
		default:
		}
		if fmt.Sprint(f.need) != fmt.Sprint(want) || caught == behind {
			t.Errorf("from %d on: needed are %v, want %v; caught up %v", next, f.need, want, caught)
		}
	}
}
