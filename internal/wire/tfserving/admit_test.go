package tfserving

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// door lets requests for every model in but one.
type door struct {
	UnimplementedPrediction
	inside  int
	decoded []string
}

func (d *door) Admit(_ context.Context, model string) (leave func(), err error) {
	if model == "full" {
		return nil, status.Error(codes.ResourceExhausted, "full")
	}
	d.inside++
	return func() { d.inside-- }, nil
}

func (d *door) Predict(_ context.Context, req *apis.PredictRequest) (*apis.PredictResponse, error) {
	d.decoded = append(d.decoded, req.GetModelSpec().GetName())
	return &apis.PredictResponse{ModelSpec: req.GetModelSpec()}, nil
}

// A request is refused by the name of its model before the rest of it is looked at, and let in once.
func TestAdmitter(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{}
	srv := grpc.NewServer(Codec())
	RegisterPrediction(srv, d)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	defer func() { srv.Stop(); <-served }()
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	c := NewPredictionClient(cc)
	if res, err := c.Predict(t.Context(), &apis.PredictRequest{ModelSpec: Spec("m", 3)}); err != nil || res.GetModelSpec().GetVersion().GetValue() != 3 {
		t.Errorf("let in: %v, %v", res, err)
	}
	if _, err := c.Predict(t.Context(), &apis.PredictRequest{ModelSpec: Spec("full", 3)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("refused: %v", err)
	}
	if _, err := c.Classify(t.Context(), &apis.ClassificationRequest{ModelSpec: Spec("full", 3)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("refused: %v", err)
	}
	if _, err := c.Classify(t.Context(), &apis.ClassificationRequest{ModelSpec: Spec("m", 3)}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that is not served: %v", err)
	}
	if _, err := c.GetModelMetadata(t.Context(), &apis.GetModelMetadataRequest{ModelSpec: Spec("full", 0)}); status.Code(err) != codes.Unimplemented {
		t.Errorf("metadata cost nothing: %v", err)
	}
	srv.GracefulStop()
	if len(d.decoded) != 1 || d.inside != 0 {
		t.Errorf("decoded %q, %d inside", d.decoded, d.inside)
	}
}

func TestPeek(t *testing.T) {
	for name, c := range map[string]struct {
		message proto.Message
		path    []protowire.Number
	}{
		"Predict":        {&apis.PredictRequest{ModelSpec: Spec("m", 7), OutputFilter: []string{"x"}}, nameOfSpec},
		"Classify":       {&apis.ClassificationRequest{ModelSpec: Spec("m", 7), Input: &apis.Input{}}, nameOfSpec},
		"Regress":        {&apis.RegressionRequest{ModelSpec: Spec("m", 7)}, nameOfSpec},
		"MultiInference": {&apis.MultiInferenceRequest{Tasks: []*apis.InferenceTask{{MethodName: "x", ModelSpec: Spec("m", 7)}, {ModelSpec: Spec("n", 7)}}}, nameOfTask},
	} {
		b, err := proto.Marshal(c.message)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(peek(b, c.path)); got != "m" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := peek(nil, nameOfSpec); len(got) > 0 {
		t.Errorf("nothing: %q", got)
	}
}

// What is found in a message without decoding it is what decoding finds, for messages as protobuf writes them.
func FuzzPeek(f *testing.F) {
	for _, m := range []*apis.PredictRequest{{}, {ModelSpec: Spec("movies", 1)}, {OutputFilter: []string{"a", "b"}, ModelSpec: Spec("m", 0)}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		peek(b, nameOfTask)
		peek(b, nameOfSpec)
		m := &apis.PredictRequest{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		canonical, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(peek(canonical, nameOfSpec)), m.GetModelSpec().GetName(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
