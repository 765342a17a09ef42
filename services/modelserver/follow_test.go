package modelserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// one is a server of everything, registered as the only replica.
func (w *world) one(shards int, change ...func(*modelserver.Config)) (*served, []string) {
	w.t.Helper()
	s := w.serve("c0", change...)
	subs := []string{"entry"}
	for k := range shards {
		subs = append(subs, fmt.Sprintf("ps_%d", k))
		w.register(int32(k), 0, "c0", s.RowsAddr())
	}
	return s, subs
}

func TestAvailableMeansCaughtUp(t *testing.T) {
	w := newWorld(t)
	// What the export contains, and a fenced writer's later word, must not come back.
	contained := w.publish(rowDelta("user", modelspec.FID(1, 7), 2, 8, 8, 8, 8))
	w.export(1, 2, contained)
	for i := range int64(50) {
		w.publish(w.learn("user", 1, i%20, 3, float32(i), 1, 2, 3))
	}
	w.publish(rowDelta("user", modelspec.FID(1, 7), 1, 9, 9, 9, 9))
	w.plan(1, 2, job)
	w.gate = newGate(w)
	s, subs := w.one(2)
	loaded := make(chan error, 1)
	go func() { loaded <- s.load(1, subs...) }()
	<-w.gate.waiting
	ps := func() apis.ModelVersionStatus_State {
		res, err := s.models.GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(ranker+":ps_1", 1)})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetModelVersionStatus()[0].GetState()
	}
	wait.Until(t, "loading", func() error {
		if got := ps(); got != apis.ModelVersionStatus_LOADING {
			return errors.New(got.String())
		}
		return nil
	})
	select {
	case err := <-loaded:
		t.Fatalf("the load is done (%v) with deltas outstanding", err)
	default:
	}
	if c, err := w.client(s); err != nil {
		t.Fatal(err)
	} else if _, err := c.Lookup(testContext(t), &rowwire.LookupRequest{Model: ranker, Shard: 1}); rowwire.CodeOf(err) != rowwire.NotFound {
		t.Fatalf("rows are served before they have caught up: %v", err)
	}
	close(w.gate.open)
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	// No delta comes any more: what was missed at the load would stay missed.
	wait.Until(t, "predict", func() error {
		if err := s.check(someUsers, someMovies); status.Code(err) == codes.Unavailable {
			return err // the replicas' facts are on their way
		} else if err != nil {
			t.Fatal(err)
		}
		return nil
	})
}

func TestFrozenWithoutAJob(t *testing.T) {
	for name, tc := range map[string]struct {
		job    string
		change func(*modelserver.Config)
	}{
		"no job in the plan": {"", func(*modelserver.Config) {}},
		"frozen by flag":     {job, func(c *modelserver.Config) { c.Frozen = true }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.export(1, 2, 0)
			w.plan(1, 2, tc.job)
			w.publish(rowDelta("user", modelspec.FID(1, 7), 3, 9, 9, 9, 9))
			s, subs := w.one(2, tc.change)
			s.mustLoad(1, subs...)
			wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
		})
	}
}

func TestTheNewestExportWhenDeltasAreGone(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	for i := range int64(10) {
		w.publish(w.learn("user", 1, i, 3, float32(i), 4, 4, 4))
	}
	cut := w.publish(w.learn("user", 1, 3, 3, 7, 7, 7, 7))
	w.export(2, 2, cut)
	w.exported(2, cut)
	last := w.publish(w.learn("movie", 2, 3, 3, 1, 2, 1, 2))
	trim := w.bus.Deltas().(interface {
		Trim(ctx context.Context, before uint64) error
	})
	if err := trim.Trim(testContext(t), last); err != nil {
		t.Fatal(err)
	}
	w.plan(1, 2, job)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
	res, err := s.models.GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(ranker, 0)})
	if err != nil || len(res.GetModelVersionStatus()) != 1 || res.GetModelVersionStatus()[0].GetVersion() != 1 {
		t.Fatalf("status %v, %v; want version 1, as configured", res, err)
	}
	applied := w.applied("c0", "ps_1")
	applied(w.publish(w.learn("user", 1, 1, 3, 1, 1, 1, 0)))
	if err := s.check(someUsers, someMovies); err != nil {
		t.Fatal(err)
	}
}

// A shard's own last sequence may be long gone while nothing of the export's is missing.
func TestExportFactKnowsHowFarTheStreamWas(t *testing.T) {
	w := newWorld(t)
	w.publish(w.learn("user", 1, 2, 3, 1, 2, 3, 4))
	end := w.publish(w.learn("user", 1, 4, 3, 1, 2, 3, 4)) // both of shard 0
	w.exportAt(1, 2, 0, end)
	w.exported(1, end)
	next := w.publish(w.learn("user", 1, 7, 3, 5, 5, 5, 5))
	trim := w.bus.Deltas().(interface {
		Trim(ctx context.Context, before uint64) error
	})
	if err := trim.Trim(testContext(t), next); err != nil {
		t.Fatal(err)
	}
	w.plan(1, 2, job)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
}

func TestAPlanThatComesLate(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
	// Now a job is named, which has learnt in the meantime.
	w.publish(w.learn("user", 1, 7, 3, 1, -1, 2, -2))
	w.plan(1, 2, job)
	wait.Until(t, "following", func() error { return s.check(someUsers, someMovies) })
}

func TestImpressions(t *testing.T) {
	broker, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0", Topics: map[string]int32{impression.Topic: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	w := newWorld(t)
	w.export(3, 2, 0)
	w.plan(3, 2, job)
	s, subs := w.one(2, func(c *modelserver.Config) {
		c.Brokers, c.PredictionsTopic, c.SampleRate = []string{broker.Addr()}, impression.Topic, -1
	})
	applied := w.applied("c0", "ps_1")
	s.mustLoad(3, subs...)
	seq := w.publish(w.learn("user", 1, 7, 3, 1, -1, 2, -2))
	applied(seq)
	wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) }) // leaves none

	const tp = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := metadata.AppendToOutgoingContext(testContext(t), "x-request-id", "req-1", "x-impression", "1", "traceparent", tp)
	unasked := metadata.AppendToOutgoingContext(testContext(t), "x-request-id", "a gateway's")
	if _, err := s.predict.Predict(unasked, request([]int64{7}, []int64{3})); err != nil { // leaves none either
		t.Fatal(err)
	}
	var header metadata.MD
	if _, err := s.predict.Predict(ctx, request([]int64{7, 2}, []int64{3, 4}), grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if got := header.Get("x-request-id"); !slices.Equal(got, []string{"req-1"}) {
		t.Fatalf("answered with request id %v", got)
	}

	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker.Addr()}, Topic: impression.Topic, MaxWait: 100 * time.Millisecond, MaxBytes: 1 << 20})
	defer r.Close()
	var got []*impression.Impression
	for len(got) < 2 {
		recs, _, err := r.Fetch(testContext(t), int64(len(got)))
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range recs {
			i, err := impression.Decode(rec.Value)
			if err != nil {
				t.Fatal(err)
			}
			if string(rec.Key) != "req-1" {
				t.Errorf("key %q", rec.Key)
			}
			got = append(got, i)
		}
	}
	if len(got) != 2 {
		t.Fatalf("%d impressions, want one per row", len(got))
	}
	for row, i := range got {
		user, movie := []int64{7, 2}[row], []int64{3, 4}[row]
		wantSeq := []uint64{seq, 0}[row]
		if i.RequestID != "req-1" || i.Row != row || i.Model != ranker || i.Version != 3 || i.Traceparent != tp || i.Container != "c0" ||
			!slices.Equal(i.Inputs["user"], []int64{user}) || !slices.Equal(i.Inputs["movie"], []int64{movie}) || i.Score != w.score(user, movie) || i.TimeUS == 0 {
			t.Errorf("row %d: %+v", row, i)
		}
		want := []impression.Row{
			{Feature: "user", Table: "user", ID: modelspec.FID(1, user), Shard: uint32(user % 2), SyncSeq: wantSeq},
			{Feature: "movie", Table: "movie", ID: modelspec.FID(2, movie), Shard: uint32(movie % 2)},
		}
		if !slices.Equal(i.Rows, want) {
			t.Errorf("row %d stood on %+v, want %+v", row, i.Rows, want)
		}
	}
}

func TestPredictIsASpanOfTheCallersTrace(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	spans := tracetest.NewInMemoryExporter()
	w.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("")
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
	spans.Reset()
	call := func(key, value string) *http.Response {
		req, err := http.NewRequestWithContext(testContext(t), http.MethodPost, "http://"+s.HTTPAddr()+"/v1/models/ranker:predict", strings.NewReader(`{"instances":[{"user":1,"movie":3}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(key, value)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res
	}
	defer http.DefaultClient.CloseIdleConnections()
	call("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	got := spans.GetSpans()
	if len(got) != 1 || got[0].Name != "modelserver.predict" || got[0].Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Fatalf("spans %v", got)
	}
	if id := call("X-Request-Id", "r-9").Header.Get("X-Request-Id"); id != "r-9" {
		t.Errorf("answered with request id %q", id)
	}
	if res := call("X-Request-Id", strings.Repeat("x", 300)); res.StatusCode != http.StatusBadRequest {
		t.Errorf("a request id of 300 bytes: %s", res.Status)
	}
}

func TestStopsWhileALoadWaits(t *testing.T) {
	w := newWorld(t)
	s := w.serve("c0")
	failed := make(chan error, 1)
	go func() { failed <- s.load(1, "ps_0") }() // there is no such export
	wait.Until(t, "configured", func() error {
		_, err := s.models.GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec("x", 0)})
		if status.Code(err) != codes.NotFound {
			return err
		}
		return nil
	})
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; status.Code(err) != codes.Unavailable {
		t.Fatalf("load while stopping: %v, want Unavailable", err)
	}
}
