package product

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	framework "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	types "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// Scores that change while they are asked for differ in time alone; what REST answers wrongly differs always.
func TestRESTIsComparedAtOneMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		changes int     // in the middle of so many of the first comparisons
		off     float32 // by which REST is wrong
		more    int     // scores that it has too many
		says    string
	}{
		"at rest":        {0, 0, 0, ""},
		"while learning": {5, 0, 0, ""},
		"always":         {1000, 0, 0, "the scores over gRPC change"},
		"wrong":          {0, 0.5, 0, "over REST"},
		"too many":       {0, 0, 1, "2 scores over REST, 1 over gRPC"},
	} {
		score, left := float32(1), tc.changes
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			outputs := make([]float32, 1+tc.more)
			outputs[0] = score + tc.off
			if left > 0 {
				left--
				score++
			}
			if err := json.NewEncoder(w).Encode(map[string]any{"outputs": outputs}); err != nil {
				t.Error(err)
			}
		}))
		grpc := func(context.Context) ([]byte, error) {
			return proto.Marshal(&apis.PredictResponse{Outputs: map[string]*framework.TensorProto{"score": {
				Dtype: types.DataType_DT_FLOAT, FloatVal: []float32{score},
			}}})
		}
		err := restCaller{server.Client(), server.URL}.sameAs(t.Context(), nil, grpc, 1)
		server.Close()
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
}
