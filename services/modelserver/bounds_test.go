package modelserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
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

// answers makes s answer for a model of which no replica has rows.
func answers(t *testing.T, s *Server, name string) {
	t.Helper()
	dir := t.TempDir()
	spec := modelspec.MovieRanking()
	e := &checkpoint.Entry{Spec: spec, Version: 1, Job: "j", Shards: 1, Dense: map[string]checkpoint.Variable{}}
	for _, v := range modelspec.Variables(spec) {
		e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(spec, v)}
	}
	if err := checkpoint.WriteEntry(filepath.Join(dir, "1"), e); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.servables.Run(ctx, time.Second) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := s.servables.Wait(t.Context(), nil, s.servables.Configure([]tfserving.Model{{Name: name, BasePath: dir}})); err != nil {
		t.Fatal(err)
	}
}

// Bodies that are being read together have no more bytes than all may have: who comes
// later is refused until some are done.
func TestBodiesAtOnceAreBounded(t *testing.T) {
	s, _ := viewing(t, Config{MaxBatch: 16, LookupTimeout: wait.Patience, Frozen: true})
	s.bodies = semaphore.NewWeighted(1 << 10)
	answers(t, s, "m")
	const good = `{"instances":[{"user":1,"movie":2}]}`
	post := func(body io.Reader) (int, string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/models/m:predict", body))
		return w.Code, w.Body.String()
	}
	r, w := io.Pipe()
	slow := make(chan int, 1)
	go func() {
		code, _ := post(r)
		slow <- code
	}()
	if _, err := io.WriteString(w, `{"signature_name":"`+strings.Repeat("x", 1000)); err != nil { // taken, byte for byte
		t.Fatal(err)
	}
	wait.For(t, "a body of 1,019 bytes to be counted, too", func() bool {
		free := s.bodies.TryAcquire(10)
		if free {
			s.bodies.Release(10)
		}
		return !free
	})
	if code, body := post(strings.NewReader(good)); code != http.StatusTooManyRequests || !strings.Contains(body, "try again later") {
		t.Errorf("beside a body of nearly all that may be: %d %s; want 429", code, body)
	}
	if got := value(t, s.metrics.predicts.WithLabelValues("ResourceExhausted")); got != 1 {
		t.Errorf("%v refusals counted", got)
	}
	_ = w.CloseWithError(io.ErrUnexpectedEOF)
	if code := <-slow; code != http.StatusBadRequest {
		t.Errorf("a body that breaks off: %d", code)
	}
	for range 100 { // nothing of them stays taken: no replica answers, but they are read
		if code, body := post(strings.NewReader(good)); code != http.StatusServiceUnavailable {
			t.Fatalf("afterwards: %d %s", code, body)
		}
	}
}

// held answers Predict once it may.
type held struct {
	tfserving.UnimplementedPrediction
	began chan struct{}
	may   chan struct{}
}

func (h held) Predict(ctx context.Context, _ *apis.PredictRequest) (*apis.PredictResponse, error) {
	h.began <- struct{}{}
	select {
	case <-h.may:
	case <-ctx.Done():
	}
	return &apis.PredictResponse{}, nil
}

func TestCallsAtOnceAreBounded(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := &calls{most: 2}
	srv := grpc.NewServer(grpc.InTapHandle(at.tap))
	h := held{began: make(chan struct{}, 64), may: make(chan struct{})}
	tfserving.RegisterPrediction(srv, h)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	defer func() { srv.Stop(); <-served }()
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	call := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		defer cancel()
		_, err := tfserving.NewPredictionClient(cc).Predict(ctx, &apis.PredictRequest{})
		return err
	}
	done := make(chan error, 2)
	for range 2 {
		go func() { done <- call() }()
		<-h.began
	}
	if err := call(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a third call: %v; want RESOURCE_EXHAUSTED", err)
	}
	close(h.may)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	wait.For(t, "the calls to end", func() bool { return at.now.Load() == 0 })
	for range 10 {
		if err := call(); err != nil {
			t.Fatalf("afterwards: %v", err)
		}
		wait.For(t, "the calls to end", func() bool { return at.now.Load() == 0 })
	}
}

func TestMeteredBodies(t *testing.T) {
	all := semaphore.NewWeighted(10)
	m := &metered{r: strings.NewReader("0123456789"), all: all}
	if b, err := io.ReadAll(m); err != nil || len(b) != 10 || m.taken != 10 || all.TryAcquire(1) {
		t.Errorf("%q, %v, %d taken", b, err, m.taken)
	}
	m.done()
	m = &metered{r: strings.NewReader("0123456789a"), all: all}
	if _, err := io.ReadAll(m); !errors.Is(err, errBodies) {
		t.Errorf("a byte more: %v", err)
	}
	m.done()
	if !all.TryAcquire(10) {
		t.Error("bytes stay taken")
	}
}
