package modelserver

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// Bodies that are being read together have no more bytes than all may have: who comes
// later is refused until some are done.
func TestBodiesAtOnceAreBounded(t *testing.T) {
	s := &Server{cfg: Config{MaxBatch: 16, LookupTimeout: time.Second}, metrics: newMetrics(nil), routes: newRoutes(nil, nil), bodies: semaphore.NewWeighted(1 << 10)}
	s.env = services.Env{Log: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer("")}
	s.servables = newServables(nil, 0, nil)
	s.servables.index.Store(&index{models: map[string][]*servable{"m": {{entry: newEntry(t)}}}})
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
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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
