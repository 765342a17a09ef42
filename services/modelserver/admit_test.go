package modelserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/inferencepb"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/admission"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// crowded is a gate behind which a model takes an hour for each answer.
func crowded(t *testing.T, s *Server, model string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.gate = admission.New(1, s.metrics.refused)
		leave, err := s.gate.Admit(t.Context(), model)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.gate.Admit(t.Context(), model); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		leave(true)
	})
}

// Every way to ask for scores refuses what would come too late, over REST within its time, and says when to
// try again; other models and other questions are answered.
func TestOverloadedModel(t *testing.T) {
	s, _ := viewing(t, Config{MaxBatch: 16, LookupTimeout: wait.Patience, Frozen: true})
	answers(t, s, "m")
	crowded(t, s, "m")
	post := func(path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
		return w
	}
	for _, path := range []string{"/v1/models/m:predict", "/v1/models/m:classify", "/v1/models/m:regress", "/v2/models/m/infer"} {
		if w := post(path, "no JSON, which nobody reads"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "model m is overloaded") || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %s %v", path, w.Code, w.Body, w.Header())
		}
	}
	if w := post("/v1/models/other:predict", "{}"); w.Header().Get("Retry-After") != "" {
		t.Errorf("another model: %d %s", w.Code, w.Body)
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(tfserving.Codec())
	tfserving.RegisterPrediction(srv, predictionService{s: s})
	inferencepb.RegisterGRPCInferenceServiceServer(srv, openService{s: s})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	defer func() { srv.Stop(); <-served }()
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	c := tfserving.NewPredictionClient(cc)
	for name, ask := range map[string]func() error{
		"Predict": func() error {
			_, err := c.Predict(ctx, &apis.PredictRequest{ModelSpec: tfserving.Spec("m", 0)})
			return err
		},
		"Classify": func() error {
			_, err := c.Classify(ctx, &apis.ClassificationRequest{ModelSpec: tfserving.Spec("m", 0)})
			return err
		},
		"ModelInfer": func() error {
			_, err := inferencepb.NewGRPCInferenceServiceClient(cc).ModelInfer(ctx, &inferencepb.ModelInferRequest{ModelName: "m"})
			return err
		},
	} {
		err := ask()
		if _, ok := admission.RetryIn(err); status.Code(err) != codes.ResourceExhausted || !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.GetModelMetadata(ctx, &apis.GetModelMetadataRequest{ModelSpec: tfserving.Spec("m", 0), MetadataField: []string{"signature_def"}}); err != nil {
		t.Errorf("what a model is can be asked: %v", err)
	}
	if got, refused := value(t, s.metrics.predicts.WithLabelValues("ResourceExhausted")), value(t, s.metrics.refused); got != 7 || refused != 7 {
		t.Errorf("%v answers with RESOURCE_EXHAUSTED, %v refusals counted; 7 calls were refused", got, refused)
	}
}

// slowly reads as nothing of any protocol, after a second.
type slowly struct{ io.Reader }

func (s slowly) Read(b []byte) (int, error) {
	time.Sleep(time.Second)
	return s.Reader.Read(b)
}

// What cannot be read is no answer, however it came: it would make a server look quick that answers nobody.
func TestWhatCannotBeReadIsNoAnswer(t *testing.T) {
	s, _ := viewing(t, Config{MaxBatch: 16, LookupTimeout: wait.Patience, Frozen: true})
	answers(t, s, "m")
	for _, path := range []string{"/v1/models/m:predict", "/v1/models/m:classify", "/v2/models/m/infer"} {
		synctest.Test(t, func(t *testing.T) {
			s.gate = admission.New(1, s.metrics.refused)
			if _, err := s.gate.Admit(t.Context(), "m"); err != nil { // whose slot it is
				t.Fatal(err)
			}
			began := time.Now()
			for range 3 {
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, slowly{strings.NewReader("nothing")}))
				if w.Code != http.StatusBadRequest {
					t.Fatalf("%s: %d %s", path, w.Code, w.Body)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Since(began)) // enough if each had been answered
			defer cancel()
			if _, err := s.gate.Admit(ctx, "m"); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%s: three that could not be read count as answers: %v", path, err)
			}
		})
	}
}
