package tfserving

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// door lets requests for every model in but one.
type door struct {
	UnimplementedPrediction
	inside  int
	served  int
	decoded []string
}

func (d *door) Admit(_ context.Context, model string) (leave func(served bool), err error) {
	if model == "full" {
		return nil, status.Error(codes.ResourceExhausted, "full")
	}
	d.inside++
	return func(served bool) {
		if d.inside--; served {
			d.served++
		}
	}, nil
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
	broken := &apis.PredictRequest{ModelSpec: Spec("m", 3)}
	broken.ProtoReflect().SetUnknown([]byte{0x0a, 0xff}) // a field that ends before it is over
	if _, err := c.Predict(t.Context(), broken); status.Code(err) != codes.Internal {
		t.Errorf("what cannot be decoded: %v", err)
	}
	srv.GracefulStop()
	if len(d.decoded) != 1 || d.inside != 0 || d.served != 1 {
		t.Errorf("decoded %q, %d inside, %d served", d.decoded, d.inside, d.served)
	}
}

func TestPeek(t *testing.T) {
	for name, c := range map[string]struct {
		message proto.Message
		path    []hop
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
		if got, ok := peek(b, c.path); string(got) != "m" || !ok {
			t.Errorf("%s: %q %v", name, got, ok)
		}
	}
	if got, ok := peek(nil, nameOfSpec); ok {
		t.Errorf("nothing: %q", got)
	}
	// What occurs twice is merged, and the last name counts; of tasks the first does.
	twice := func(m, n proto.Message) []byte {
		a, err := proto.Marshal(m)
		b, berr := proto.Marshal(n)
		if err != nil || berr != nil {
			t.Fatal(err, berr)
		}
		return append(a, b...)
	}
	if got, _ := peek(twice(&apis.PredictRequest{ModelSpec: Spec("idle", 0)}, &apis.PredictRequest{ModelSpec: Spec("busy", 0)}), nameOfSpec); string(got) != "busy" {
		t.Errorf("of two specs: %q", got)
	}
	task := func(name string) *apis.MultiInferenceRequest {
		return &apis.MultiInferenceRequest{Tasks: []*apis.InferenceTask{{ModelSpec: Spec(name, 0)}}}
	}
	if got, _ := peek(twice(task("first"), task("second")), nameOfTask); string(got) != "first" {
		t.Errorf("of two tasks: %q", got)
	}
}

// What is found in a message without decoding it is what decoding finds, however the message is written.
func FuzzPeek(f *testing.F) {
	spec := func(name string) []byte {
		b, err := proto.Marshal(&apis.PredictRequest{ModelSpec: Spec(name, 1), OutputFilter: []string{"a"}})
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	f.Add([]byte{})
	f.Add(spec("movies"))
	f.Add(append(spec("idle"), spec("busy")...))
	f.Add(append(spec("movies"), spec("")...))
	tasks, err := proto.Marshal(&apis.MultiInferenceRequest{Tasks: []*apis.InferenceTask{{}, {ModelSpec: Spec("m", 0)}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(tasks)
	f.Fuzz(func(t *testing.T, b []byte) {
		if m := (&apis.PredictRequest{}); proto.Unmarshal(b, m) == nil {
			if got, _ := peek(b, nameOfSpec); string(got) != m.GetModelSpec().GetName() {
				t.Errorf("%q, want %q", got, m.GetModelSpec().GetName())
			}
		}
		if m := (&apis.MultiInferenceRequest{}); proto.Unmarshal(b, m) == nil {
			want := ""
			if len(m.GetTasks()) > 0 {
				want = m.GetTasks()[0].GetModelSpec().GetName()
			}
			if got, _ := peek(b, nameOfTask); string(got) != want {
				t.Errorf("of tasks %q, want %q", got, want)
			}
		}
	})
}
