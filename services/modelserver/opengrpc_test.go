package modelserver_test

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/inferencepb"
)

// inferIDs is a request of the open inference protocol with typed contents.
func inferIDs(version string, users, movies []int64) *inferencepb.ModelInferRequest {
	input := func(name string, ids []int64) *inferencepb.ModelInferRequest_InferInputTensor {
		return &inferencepb.ModelInferRequest_InferInputTensor{Name: name, Datatype: "INT64", Shape: []int64{int64(len(ids))},
			Contents: &inferencepb.InferTensorContents{Int64Contents: ids}}
	}
	return &inferencepb.ModelInferRequest{ModelName: ranker, ModelVersion: version, Id: "a", Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{input("user", users), input("movie", movies)}}
}

// The open inference protocol over gRPC answers what Predict does, of the version that is asked for, and
// refuses with a code and the way out.
func TestOpenInferenceOverGRPC(t *testing.T) {
	c := newCluster(t, job)
	v2 := inferencepb.NewGRPCInferenceServiceClient(c.entry.conn)
	ctx := metadata.AppendToOutgoingContext(testContext(t), "x-request-id", "r-7")
	for _, version := range []string{"", "1"} {
		a, err := v2.ModelInfer(ctx, inferIDs(version, []int64{5, 6}, []int64{7, 8}))
		if err != nil {
			t.Fatal(err)
		}
		got := a.GetOutputs()[0].GetContents().GetFp32Contents()
		if a.GetId() != "a" || a.GetModelVersion() != "1" || len(a.GetOutputs()) != 1 || len(got) != 2 {
			t.Fatalf("version %q: %v", version, a)
		}
		for i, want := range []float32{c.w.score(5, 7), c.w.score(6, 8)} {
			if math.Abs(float64(got[i]-want)) > 1e-6 {
				t.Errorf("version %q, row %d: %v, want %v", version, i, got[i], want)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*inferencepb.ModelInferRequest)
		want   codes.Code
		says   string
	}{
		"no such model":   {func(m *inferencepb.ModelInferRequest) { m.ModelName = "nobody" }, codes.NotFound, "Latest(nobody)"},
		"no such version": {func(m *inferencepb.ModelInferRequest) { m.ModelVersion = "7" }, codes.NotFound, "Specific(ranker, 7)"},
		"no version":      {func(m *inferencepb.ModelInferRequest) { m.ModelVersion = "new" }, codes.InvalidArgument, "send a whole number"},
		"no such output": {func(m *inferencepb.ModelInferRequest) {
			m.Outputs = []*inferencepb.ModelInferRequest_InferRequestedOutputTensor{{Name: "x"}}
		}, codes.InvalidArgument, "not found in signature"},
		"an input less": {func(m *inferencepb.ModelInferRequest) { m.Inputs = m.Inputs[:1] }, codes.InvalidArgument, "movie"},
		"a wrong type":  {func(m *inferencepb.ModelInferRequest) { m.Inputs[0].Datatype = "BOOL" }, codes.InvalidArgument, "send INT64 for ids"},
	} {
		req := inferIDs("", []int64{5}, []int64{7})
		tc.change(req)
		before := c.entry.counted(t, "monolith_modelserver_predict_total", tc.want.String())
		if _, err := v2.ModelInfer(ctx, req); status.Code(err) != tc.want || !strings.Contains(status.Convert(err).Message(), tc.says) {
			t.Errorf("%s: %v; want %v saying %q", name, err, tc.want, tc.says)
		}
		if got := c.entry.counted(t, "monolith_modelserver_predict_total", tc.want.String()) - before; got != 1 {
			t.Errorf("%s: counted %v times", name, got)
		}
	}
	idle := c.w.serve("idle") // of which nobody has asked for a model
	if ready, err := inferencepb.NewGRPCInferenceServiceClient(idle.conn).ServerReady(ctx, &inferencepb.ServerReadyRequest{}); err != nil || ready.GetReady() {
		t.Errorf("a server without models: %v, %v", ready, err)
	}
}
