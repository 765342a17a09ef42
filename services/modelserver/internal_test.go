package modelserver

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/kernels/table"
)

// value is what a counter says.
func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// Halves in deltas against the definition, over every bit pattern.
func TestHalves(t *testing.T) {
	var all []byte
	for h := range 1 << 16 {
		all = binary.LittleEndian.AppendUint16(all, uint16(h))
	}
	decoded := appendFloats([]float32{7}, all, 2, 0)
	if len(decoded) != 1+1<<16 || decoded[0] != 7 {
		t.Fatalf("%d numbers of %d halves behind one", len(decoded), 1<<16)
	}
	for h := range 1 << 16 {
		sign, exp, frac := float64(1), h>>10&0x1f, float64(h&0x3ff)
		if h>>15 == 1 {
			sign = -1
		}
		want := sign * math.Ldexp(1+frac/1024, exp-15)
		switch {
		case exp == 0:
			want = sign * math.Ldexp(frac/1024, -14)
		case exp == 31 && frac == 0:
			want = math.Inf(int(sign))
		case exp == 31:
			want = math.NaN()
		}
		got := float64(decoded[1+h])
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != math.Signbit(want) && !math.IsNaN(want) {
			t.Fatalf("%#04x is %v, want %v", h, got, want)
		}
	}
}

func newPS(t testing.TB) *psModel {
	m := &psModel{model: "m", shards: 1, tables: map[string]*table.Table{}}
	for _, name := range []string{"user", "movie"} {
		tab, err := newTable(nil, name, 2)
		if err != nil {
			t.Fatal(err)
		}
		m.tables[name] = tab
	}
	return m
}

func newEntry(t testing.TB) *entryModel {
	spec := modelspec.MovieRanking()
	for _, tab := range spec.Tables {
		tab.Dim = 2
	}
	spec.Layers = spec.Layers[2:]
	e := &checkpoint.Entry{Spec: spec, Shards: 1, Dense: map[string]checkpoint.Variable{}}
	for _, v := range modelspec.Variables(spec) {
		e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(spec, v)}
	}
	m, err := newEntryModel("m", 1, 1, e)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// loaded is the scratch of a Predict that is about to ask for its rows.
func loaded(t testing.TB, m *entryModel, users, movies []int64) *scratch {
	t.Helper()
	sc := m.scratches.Get().(*scratch)
	if err := sc.load(m, map[string]*tfserving.TensorProto{"user": tfserving.NewInt64(users), "movie": tfserving.NewInt64(movies)}, len(users)); err != nil {
		t.Fatal(err)
	}
	if err := sc.batch.Seal(); err != nil {
		t.Fatal(err)
	}
	return sc
}

func testFeed(apply func(*delta.Delta, uint64, time.Time) error, served func(flush)) *feed {
	return &feed{bzid: "b", job: "j", shards: 1, contained: map[uint32]uint64{}, epochs: map[uint32]uint64{}, next: 1,
		apply: apply, served: served, metrics: newMetrics(nil), tracer: noop.NewTracerProvider().Tracer(""), log: slog.New(slog.DiscardHandler)}
}

func FuzzDelta(f *testing.F) {
	for _, d := range []*delta.Delta{
		{Chunks: 1, Rows: []*delta.Rows{{Table: "user", Dim: 2, Ids: []uint64{1, 2}, Values: make([]byte, 16), Removed: []uint64{3}}}},
		{Chunks: 1, Rows: []*delta.Rows{{Table: "movie", Dim: 2, Encoding: delta.Encoding_FP16, Ids: []uint64{1}, Values: make([]byte, 4)}}},
		{Chunks: 1, Rows: []*delta.Rows{{Table: "movie", Dim: 2, Encoding: delta.Encoding_INT8, Scale: 2, Ids: []uint64{1}, Values: make([]byte, 2)}}},
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
		ps, entry := newPS(t), newEntry(t)
		rows := testFeed(func(d *delta.Delta, seq uint64, at time.Time) error { return ps.apply(d, seq, uint32(at.Unix())) }, func(flush) {})
		dense := testFeed(func(d *delta.Delta, seq uint64, _ time.Time) error { return entry.apply(d, seq) }, func(flush) {})
		for seq := range uint64(2) {
			for _, f := range []*feed{rows, dense} {
				if err := f.handle(t.Context(), bus.StoredDelta{Seq: seq + 1, Data: data}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for name, tab := range ps.tables {
			all, _ := tab.Rows(math.MinInt64, 1<<20)
			for _, r := range all {
				for _, v := range r.Values {
					if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
						t.Fatalf("table %s row %d holds %v", name, r.ID, v)
					}
				}
			}
		}
		for i, v := range entry.params.Load().Values {
			if len(v) != entry.vars[i].Size {
				t.Fatalf("variable %s has %d values", entry.vars[i].Name, len(v))
			}
		}
	})
}

// Every outcome of a delta, in one stream.
func TestFeedOutcomes(t *testing.T) {
	var applied []uint64
	var served []flush
	f := testFeed(func(d *delta.Delta, seq uint64, _ time.Time) error {
		applied = append(applied, seq)
		if d.GetStep() == 666 {
			return errors.New("half of it does not fit")
		}
		return nil
	}, func(x flush) { served = append(served, x) })
	spans := tracetest.NewInMemoryExporter()
	f.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("")
	f.contained[0], f.epochs[0] = 2, 5
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
	if !caught() || len(served) != 1 || served[0].seq != 3 {
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
	if want := []flush{{3, time.Unix(3, 0)}, {7, time.Unix(7, 0)}}; !slices.Equal(served, want) {
		t.Errorf("served %v, want %v", served, want)
	}
	for outcome, want := range map[string]float64{"contained": 1, "fenced": 1, "applied": 4, "malformed": 3} {
		if got := value(t, f.metrics.deltas.WithLabelValues(outcome)); got != want {
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

func TestFreshnessDropsTheOldest(t *testing.T) {
	b := mem.New()
	defer b.Close()
	var got []uint64
	heard := make(chan struct{}, 64)
	stop, err := b.Signals().Listen(t.Context(), "mpulse.b.applied.c", func(_ string, payload []byte) {
		var d transfer.DeltasApplied
		if err := protojson.Unmarshal(payload, &d); err != nil {
			t.Error(err)
		}
		for _, a := range d.GetApplied() {
			got = append(got, a.GetSyncSeq())
		}
		heard <- struct{}{}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	f := &freshness{subject: signalSubject("b", "c"), container: "c", bus: b.Signals(), metrics: newMetrics(nil), log: slog.New(slog.DiscardHandler), pending: map[subModel][]*transfer.Applied{}}
	for seq := range uint64(maxPending + 3) {
		f.add(subModel{"m", "ps_0"}, seq+1, time.Now())
	}
	f.flush(t.Context())
	for range maxPending / maxSignal {
		<-heard
	}
	if len(got) != maxPending || got[0] != 4 || got[len(got)-1] != maxPending+3 {
		t.Errorf("%d signalled, from %d to %d", len(got), got[0], got[len(got)-1])
	}
	if n := value(t, f.metrics.signals.WithLabelValues("dropped")); n != 3 {
		t.Errorf("%v dropped, want 3", n)
	}
	if n := value(t, f.metrics.signals.WithLabelValues("sent")); n != maxPending {
		t.Errorf("%v sent, want %d", n, maxPending)
	}
}

func TestImpressionsDropWhenFullAndDrainAtTheEnd(t *testing.T) {
	var written int
	p := &impressions{topic: "t", container: "c", metrics: newMetrics(nil), log: slog.New(slog.DiscardHandler), attempts: health.New().Attempts("impressions"), queue: make(chan *impression.Impression, 1000)}
	fail := true
	p.write = func(ctx context.Context, recs ...kafka.Record) ([]kafka.Record, error) {
		if fail {
			fail = false
			return nil, errors.New("away")
		}
		written += len(recs)
		return recs, nil
	}
	for range cap(p.queue) {
		p.queue <- &impression.Impression{RequestID: "r", Model: "m"}
	}
	m := newEntry(t)
	sc := loaded(t, m, []int64{1, 2}, []int64{3, 4})
	sc.shards[0].split(m, 0, sc.batch.Blocks(0), true)
	for i := range sc.shards[0].asks {
		sc.shards[0].asks[i].from = &endpoint{}
	}
	(&recorder{requestID: "x", to: p}).take(m, sc, 0, [][]float32{{0.5, 0.5}})
	if n := value(t, p.metrics.impressions.WithLabelValues("dropped")); n != 2 {
		t.Errorf("%v dropped, want both rows", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.run(ctx, 10*time.Second)
	if lost := value(t, p.metrics.impressions.WithLabelValues("failed")); written+int(lost) != cap(p.queue) || lost > impressionBatch || len(p.queue) != 0 {
		t.Errorf("%d written, %v lost with the failed write, %d left; want all %d accounted for", written, lost, len(p.queue), cap(p.queue))
	}
}

func TestWantImpressions(t *testing.T) {
	var none *impressions
	if none.want(caller{requestID: "id", impressions: true}, "", 1) != nil {
		t.Error("impressions without brokers")
	}
	p := &impressions{}
	if r := p.want(caller{requestID: "id", impressions: true}, "tp", -1); r == nil || r.requestID != "id" || r.traceparent != "tp" {
		t.Errorf("a request that asks: %+v", r)
	}
	if r := p.want(caller{impressions: true}, "", -1); r == nil || len(r.requestID) != 32 {
		t.Errorf("a request that asks, without an id: %+v", r)
	}
	for _, id := range []string{"", "gateways add one"} {
		c := caller{requestID: id}
		if p.want(c, "", -1) != nil {
			t.Errorf("a sample at rate -1 of a request with id %q", id)
		}
		if r := p.want(c, "", 1); r == nil || id != "" && r.requestID != id || len(r.requestID) == 0 {
			t.Errorf("a sample at rate 1: %+v", r)
		}
		share := 0
		for range 10000 {
			if p.want(c, "", 0.05) != nil {
				share++
			}
		}
		if share < 300 || share > 700 { // 500 +- 10 sigma
			t.Errorf("%d of 10,000 requests with id %q at a share of 0.05", share, id)
		}
	}
	for v, want := range map[string]bool{"": false, "0": false, "false": false, "False": false, "1": true, "true": true} {
		if asks(v) != want {
			t.Errorf("x-impression: %q asks: %v", v, !want)
		}
	}
}

func TestPick(t *testing.T) {
	r := newRoutes(nil, nil)
	a, b, c := &endpoint{addr: "a"}, &endpoint{addr: "b"}, &endpoint{addr: "c"}
	key, want := shardKey{"m", 1}, exportID{3, "job"}
	r.byShard.Store(&map[shardKey]*choice{key: {all: []*endpoint{a, b, c}}})
	if r.pick(shardKey{"m", 2}, want, nil) != nil {
		t.Error("a replica of a shard that has none")
	}
	seen := map[*endpoint]int{}
	for range 30 {
		seen[r.pick(key, want, nil)]++
	}
	if seen[a] != 10 || seen[b] != 10 || seen[c] != 10 {
		t.Errorf("equals took turns %d, %d, %d times", seen[a], seen[b], seen[c])
	}
	a.outstanding.Store(2)
	b.outstanding.Store(1)
	if got := r.pick(key, want, []*endpoint{c}); got != b {
		t.Errorf("least outstanding: %s", got.addr)
	}
	b.failed()
	if got := r.pick(key, want, []*endpoint{c}); got != a {
		t.Errorf("one that failed goes before a busy one: %s", got.addr)
	}
	if got := r.pick(key, want, []*endpoint{c, a}); got != b {
		t.Error("one that failed is not asked even as the last")
	}
	if got := r.pick(key, want, []*endpoint{c, a, b}); got != nil {
		t.Errorf("all tried: %s", got.addr)
	}
	c.lacks(want)
	if got := r.pick(key, want, []*endpoint{b}); got != a {
		t.Errorf("one that lacks the version goes before a busy one: %s", got.addr)
	}
	if got := r.pick(key, exportID{3, "another"}, []*endpoint{b}); got != c {
		t.Errorf("of another version nothing is known: %s", got.addr)
	}
}

func TestMetricsMayBeShared(t *testing.T) {
	reg := prometheus.NewRegistry()
	a, b := newMetrics(reg), newMetrics(reg)
	a.rows.Inc()
	b.rows.Inc()
	if got := value(t, a.rows); got != 2 {
		t.Errorf("two servers counted %v rows", got)
	}
	at := time.Unix(1000, 0)
	a.updated(at, at.Add(time.Second))
	a.updated(at.Add(-time.Second), at.Add(time.Second)) // older: the newest stays
	if got := a.newest.Load().published; !got.Equal(at) {
		t.Errorf("newest update published at %v", got)
	}
}

func TestSplitName(t *testing.T) {
	for name, want := range map[string]struct {
		model, sub string
		shard      int
	}{"m": {"m", "entry", -1}, "m:entry": {"m", "entry", -1}, "m:ps_0": {"m", "ps_0", 0}, "m:ps_65535": {"m", "ps_65535", maxShards - 1}, "a:b:ps_12": {"a:b", "ps_12", 12}} {
		model, sub, shard, err := splitName(name)
		if err != nil || model != want.model || sub != want.sub || shard != want.shard {
			t.Errorf("%s: %s, %s, %d, %v", name, model, sub, shard, err)
		}
	}
	for _, name := range []string{":entry", "m:", "m:ps_", "m:ps_-1", "m:ps_01", "m:ps_99999999999", "m:ps_65536", "m:dense_0"} {
		if _, _, _, err := splitName(name); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Config{Container: "c"}
	if err := good.Validate(); err != nil {
		t.Errorf("the zero value with a container: %v", err)
	}
	good = good.withDefaults()
	if err := good.Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for name, change := range map[string]func(*Config){
		"no container": func(c *Config) { c.Container = "" },
		"grpc":         func(c *Config) { c.GRPC = "nowhere" },
		"rows":         func(c *Config) { c.Rows = "unix://relative" },
		"rate":         func(c *Config) { c.SampleRate = 2 },
		"batch":        func(c *Config) { c.MaxBatch = -1 },
		"retries":      func(c *Config) { c.LookupRetries = 99 },
		"timeout":      func(c *Config) { c.LookupTimeout = -1 },
	} {
		c := good
		change(&c)
		if c.Validate() == nil {
			t.Errorf("%s passes", name)
		}
	}
}
