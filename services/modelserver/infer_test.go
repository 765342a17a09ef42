package modelserver_test

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver"

	"github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// timed makes the world's model that of viewings, and one of its tasks a number.
func (w *world) timed() []viewing {
	w.listed()
	w.spec.Tasks[1].Name, w.spec.Tasks[1].Loss, w.spec.Tasks[1].Label = "length", model.Task_MSE, &model.Label{Field: "length"}
	return []viewing{{1, []int64{3, 4, 3}, 5, "fr", 0.5, []float32{1, -1}}, {2, nil, 6, "de", 40, []float32{0.25, 3}}}
}

// shared are the rows as one caller's: all but history, movie and vec are those of the first.
func shared(rows []viewing) (all []viewing) {
	for _, r := range rows {
		r.user, r.country, r.age = rows[0].user, rows[0].country, rows[0].age
		all = append(all, r)
	}
	return all
}

// numbers are the answers of the model of timed; its second task is "length".
func (w *world) numbers(rows []viewing) (like, length []float32) {
	got := w.answers(rows)
	return got["like"], got["share"]
}

func pairs(scores []float32) (all [][][2]any) {
	for _, p := range scores {
		all = append(all, [][2]any{{"0", float64(1 - p)}, {"1", float64(p)}})
	}
	return all
}

// nearly compares what came as JSON with what should have come.
func nearly(t *testing.T, what string, got json.RawMessage, want any) {
	t.Helper()
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var x, y any
	decode(t, what, got, &x)
	decode(t, what, b, &y)
	if diff := cmp.Diff(y, x, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestOracleTensorFlowInference asks with TensorFlow's own messages and stubs: classes and numbers are
// those of Predict, over gRPC and REST, also with a context.
func TestOracleTensorFlowInference(t *testing.T) {
	python := oracle.Python(t)
	w := newWorld(t)
	rows := w.timed()
	w.export(1, 2, 0)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	wait.Until(t, "the first answer", func() error { _, err := s.ask(tensors(rows)); return err })
	var given [][]any
	for _, r := range rows {
		given = append(given, []any{r.user, append([]int64{}, r.history...), r.movie, r.country, r.age, r.vec})
	}
	body, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/tf_infer.py", s.GRPCAddr(), s.HTTPAddr(), ranker, string(body))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got map[string]json.RawMessage
	decode(t, "the answers", stdout.Bytes(), &got)
	like, length := w.numbers(rows)
	// What an example says counts before the context: a history that is there, though empty, is its own.
	together := shared(rows)
	likeOfAll, lengthOfAll := w.numbers(together)
	for what, want := range map[string]any{
		"classify":         pairs(like),
		"classified by":    []any{ranker, 1, "like"},
		"no output named":  []any{"INVALID_ARGUMENT", "model ranker has 2 outputs; name one of {like, length} as the signature, or send Predict"},
		"a number's class": []any{"INVALID_ARGUMENT", `output "length" of model ranker is a number and no probability of a class; send Regress`},
		"regress":          length,
		"empty":            []any{"INVALID_ARGUMENT", "the input is empty; send example_list with at least one tf.train.Example"},
		"multi":            []any{lengthOfAll, pairs(likeOfAll)},
		"signatures":       map[string]string{"serving_default": tfserving.MethodPredict, "like": tfserving.MethodClassify, "length": tfserving.MethodRegress},
		"rest classify":    []any{200, map[string]any{"results": pairs(like)}},
		"rest regress":     []any{200, map[string]any{"results": length}},
		"rest context":     []any{200, map[string]any{"results": lengthOfAll}},
	} {
		nearly(t, what, got[what], want)
	}
}

// What cannot be answered is refused with the way out of it.
func TestInferenceThatIsRefused(t *testing.T) {
	w := newWorld(t)
	rows := w.timed()
	w.export(1, 2, 0)
	s, subs := w.one(2, func(c *modelserver.Config) { c.MaxBatch = 2 })
	s.mustLoad(1, subs...)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	wait.Until(t, "the first answer", func() error { _, err := s.ask(tensors(rows)); return err })
	task := func(name, signature, method string) *apis.InferenceTask {
		spec := tfserving.Spec(name, 0)
		spec.SignatureName = signature
		return &apis.InferenceTask{ModelSpec: spec, MethodName: method}
	}
	const regress, classify = tfserving.MethodRegress, tfserving.MethodClassify
	one := new(example_protos_go_proto.Example)
	if err := proto.Unmarshal([]byte(example(t, rows[0])), one); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		tasks    []*apis.InferenceTask
		examples int
		want     codes.Code
		says     string
	}{
		"both":              {[]*apis.InferenceTask{task(ranker, "like", classify), task(ranker, "like", regress)}, 2, codes.OK, ""},
		"no tasks":          {nil, 1, codes.InvalidArgument, "name the model"},
		"two models":        {[]*apis.InferenceTask{task(ranker, "like", classify), task("other", "like", regress)}, 1, codes.InvalidArgument, "send other its own request"},
		"too many tasks":    {slices.Repeat([]*apis.InferenceTask{task(ranker, "like", regress)}, 65), 1, codes.InvalidArgument, "send 1 to 64"},
		"another method":    {[]*apis.InferenceTask{task(ranker, "like", "tensorflow/serving/predict")}, 1, codes.InvalidArgument, "use tensorflow/serving/classify or"},
		"no such output":    {[]*apis.InferenceTask{task(ranker, "love", classify)}, 1, codes.InvalidArgument, "{like, length}"},
		"no such model":     {[]*apis.InferenceTask{task("other", "like", classify)}, 1, codes.NotFound, "Latest(other)"},
		"no examples":       {[]*apis.InferenceTask{task(ranker, "like", classify)}, 0, codes.InvalidArgument, "the input is empty"},
		"too many examples": {[]*apis.InferenceTask{task(ranker, "like", classify)}, 3, codes.InvalidArgument, "more than 2 rows; send a smaller batch"},
	} {
		req := &apis.MultiInferenceRequest{Tasks: tc.tasks, Input: &apis.Input{Kind: &apis.Input_ExampleList{ExampleList: &apis.ExampleList{Examples: slices.Repeat([]*example_protos_go_proto.Example{one}, tc.examples)}}}}
		if err := s.conn.Invoke(testContext(t), "/tensorflow.serving.PredictionService/MultiInference", req, new(apis.MultiInferenceResponse)); status.Code(err) != tc.want || !strings.Contains(status.Convert(err).Message(), tc.says) {
			t.Errorf("%s: %v; want %v saying %q", name, err, tc.want, tc.says)
		}
	}
	before := s.counted(t, "monolith_modelserver_predict_total", "InvalidArgument")
	for body, says := range map[string]string{
		`{}`: "'examples' is missing", `{"examples":{}}`: "'examples' is no list", `{"examples":[]}`: "send at least one", `{"examples":[1]}`: "example 0 is no object",
		`{"examples":[{"user":[[1]]}]}`: `example 0, feature "user": a list within a list`, `{"examples":[{"user":null}]}`: "leave the feature out",
		`{"examples":[{"user":[1,"x"]}]}`: "values of one kind", `{"examples":[{"user":1,"user":2}]}`: `the feature "user" twice`,
		`{"examples":[{"user":99999999999999999999}]}`: "is no int64", `{"examples":[{},{},{}]}`: "more than 2 elements", `{"examples":[{"user":{"b64":"?"}}]}`: "is not base64",
		`{"examples":[{"user":1}],"examples":[{"user":1}]}`: "'examples' is given twice", `{"examples":[{"user":1}]} 1`: "more than one JSON value",
		`{"signature_name":"like","examples":[{"user":1}]}`: `input \"examples\", row 0`, `{"signature_name":"love","examples":[{"user":1}]}`: "{like, length}",
	} {
		if code, answer := post(t, s, "/v1/models/ranker:regress", body); code != http.StatusBadRequest || !strings.Contains(answer, strings.ReplaceAll(says, `feature "user"`, `feature \"user\"`)) {
			t.Errorf("%s: %d %s; want %q", body, code, answer, says)
		}
	}
	if got := s.counted(t, "monolith_modelserver_predict_total", "InvalidArgument") - before; got != 15 {
		t.Errorf("%v refusals counted, want 15", got)
	}
}
