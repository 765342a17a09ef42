package tfsclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"

	"github.com/monolith-go/monolith/internal/compat/instances"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a TensorFlow Serving with one model, m, that keeps what it is asked.
type server struct {
	tfserving.UnimplementedPrediction
	mu       sync.Mutex
	predicts []*apis.PredictRequest
	loaded   []tfserving.Model
	fail     int // Predict calls that are refused
}

func (s *server) Predict(_ context.Context, in *apis.PredictRequest) (*apis.PredictResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail > 0 {
		s.fail--
		return nil, status.Error(codes.ResourceExhausted, "full")
	}
	s.predicts = append(s.predicts, in)
	return &apis.PredictResponse{ModelSpec: tfserving.Spec("m", 7), Outputs: map[string]*tfserving.TensorProto{"score": tfserving.NewFloat([]float32{0.5, 0.25})}}, nil
}

func (s *server) last(t *testing.T) map[string]*tfserving.TensorProto {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.predicts) == 0 {
		t.Fatal("nothing was asked")
	}
	return s.predicts[len(s.predicts)-1].GetInputs()
}

func info(dtype types_go_proto.DataType, dims ...int64) *for_core_protos_go_proto.TensorInfo {
	shape := &tensor_shape_go_proto.TensorShapeProto{}
	for _, d := range dims {
		shape.Dim = append(shape.Dim, &tensor_shape_go_proto.TensorShapeProto_Dim{Size: d})
	}
	return &for_core_protos_go_proto.TensorInfo{Dtype: dtype, TensorShape: shape}
}

func (s *server) GetModelMetadata(_ context.Context, in *apis.GetModelMetadataRequest) (*apis.GetModelMetadataResponse, error) {
	if in.GetMetadataField()[0] != "signature_def" {
		return nil, status.Errorf(codes.InvalidArgument, "Metadata field %s is not supported", in.GetMetadataField()[0])
	}
	body, err := anypb.New(&apis.SignatureDefMap{SignatureDef: map[string]*for_core_protos_go_proto.SignatureDef{
		"serving_default": {Inputs: map[string]*for_core_protos_go_proto.TensorInfo{
			"user": info(types_go_proto.DataType_DT_INT64, -1), "age": info(types_go_proto.DataType_DT_FLOAT, -1, 2), "small": info(types_go_proto.DataType_DT_INT32, -1, -1),
			"history": info(types_go_proto.DataType_DT_INT64, -1), "history/row_splits": info(types_go_proto.DataType_DT_INT64, -1),
		}},
		"texts": {Inputs: map[string]*for_core_protos_go_proto.TensorInfo{"inputs": info(types_go_proto.DataType_DT_STRING, -1)}},
	}})
	return &apis.GetModelMetadataResponse{ModelSpec: tfserving.Spec("m", 7), Metadata: map[string]*anypb.Any{"signature_def": body}}, err
}

func (s *server) GetModelStatus(_ context.Context, in *apis.GetModelStatusRequest) (*apis.GetModelStatusResponse, error) {
	if in.GetModelSpec().GetName() != "m" && in.GetModelSpec().GetName() != "ps_1" {
		return nil, status.Errorf(codes.NotFound, "Could not find any versions of model %s", in.GetModelSpec().GetName())
	}
	return &apis.GetModelStatusResponse{ModelVersionStatus: []*apis.ModelVersionStatus{
		{Version: 7, State: apis.ModelVersionStatus_AVAILABLE, Status: &apis.StatusProto{}},
		{Version: 6, State: apis.ModelVersionStatus_END, Status: &apis.StatusProto{ErrorCode: for_core_protos_go_proto.Code_NOT_FOUND, ErrorMessage: "gone"}},
	}}, nil
}

func (s *server) HandleReloadConfigRequest(_ context.Context, in *apis.ReloadConfigRequest) (*apis.ReloadConfigResponse, error) {
	models, err := tfserving.Models(in.GetConfig())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded = models; err != nil {
		return &apis.ReloadConfigResponse{Status: &apis.StatusProto{ErrorCode: for_core_protos_go_proto.Code_INVALID_ARGUMENT, ErrorMessage: err.Error()}}, nil
	}
	return &apis.ReloadConfigResponse{Status: &apis.StatusProto{}}, nil
}

// listen serves s, and returns its address.
func (s *server) listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	tfserving.RegisterPrediction(g, s)
	tfserving.RegisterModel(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return l.Addr().String()
}

func run(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func file(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStatusMetaLoad(t *testing.T) {
	s := &server{}
	at := s.listen(t)
	host, port, _ := net.SplitHostPort(at)
	t.Setenv("MY_HOST_IP", host)
	t.Setenv("SHARD_ID", "1")
	t.Setenv("MONOLITH_HOST_SHARD_N", "2")
	t.Setenv("PORT3", "")
	conf := file(t, "agent.conf", []byte("deploy_type ps\nnum_ps 4\ntfs_ps_port "+port+"\n"))
	models := file(t, "models.txt", []byte(`model_config_list { config { name: "m" base_path: "/d/m" model_platform: "tensorflow" model_version_policy { specific { versions: 7 } } } }`))
	for _, tc := range []struct {
		args string
		want string
	}{
		{"status --target " + at + " --model_name m", "m  7  AVAILABLE\nm  6  END  NOT_FOUND: gone\n"},
		{"status --conf " + conf, "ps_1  7  AVAILABLE\nps_1  6  END  NOT_FOUND: gone\n"},
		{"--cmd-type=status --compat --target " + at + " --model-name m", "model_version_status: {\n  version: 7\n  state: AVAILABLE\n  status: {}\n}\nmodel_version_status: {\n  version: 6\n  state: END\n  status: {\n    error_code: NOT_FOUND\n    error_message: \"gone\"\n  }\n}\n"},
		{"status --output dump --target " + at + " --model_name m", "\"model_version_status\":\n  0:\n    \"version\": \"7\"\n    \"state\": \"AVAILABLE\"\n    \"status\": {}\n  1:\n    \"version\": \"6\"\n    \"state\": \"END\"\n    \"status\":\n      \"error_code\": \"NOT_FOUND\"\n      \"error_message\": \"gone\"\n"},
		{"load --target " + at + " --input_file " + models, "load done: 1 models\n"},
	} {
		if got, err := run(strings.Fields(tc.args)...); err != nil || got != tc.want {
			t.Errorf("%s: %v\ngot  %q\nwant %q", tc.args, err, got, tc.want)
		}
	}
	if diff := cmp.Diff([]tfserving.Model{{Name: "m", BasePath: "/d/m", Policy: tfserving.Policy{Versions: []int64{7}}}}, s.loaded); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
	if got, err := run("meta", "--target", at, "--model_name=m", "--json"); err != nil || !json.Valid([]byte(got)) || !strings.Contains(got, "history/row_splits") {
		t.Errorf("meta: %v\n%s", err, got)
	}
	for args, want := range map[string]string{
		"status --target " + at + " --model_name x":                                                                   "NotFound",
		"meta --metadata_field=base_path --model_name m --target " + at:                                               "Metadata field base_path is not supported",
		"load --target " + at + " --input_file " + file(t, "x", []byte("x")):                                          "no ModelServerConfig",
		"load --target " + at + " --input_file " + file(t, "y", []byte(`model_config_list { config { name: "m" } }`)): "m needs a base_path",
		"status --model_name m --timeout 1ms --target 127.0.0.1:1":                                                    "127.0.0.1:1",
	} {
		if out, err := run(strings.Fields(args)...); err == nil || errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q\n%s", args, err, want, out)
		}
	}
}

// Samples of each kind arrive as the bytes that the file has.
func TestGet(t *testing.T) {
	s := &server{}
	at := s.listen(t)
	get := func(args ...string) map[string]*tfserving.TensorProto {
		t.Helper()
		out, err := run(append([]string{"get", "--target", at, "--model_name=m", "--json"}, args...)...)
		if err != nil || !strings.Contains(out, `"score"`) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
		return s.last(t)
	}
	one := &idlpb.Instance{Fid: []uint64{7}, Label: []float32{1}}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(one)
	if err != nil {
		t.Fatal(err)
	}
	for kind, form := range map[string]instances.Form{"json": instances.JSON, "pbtext": instances.PBTxt, "dump": instances.Dump, "binary": instances.PB} {
		text, err := form.Format(one)
		if err != nil {
			t.Fatal(err)
		}
		in := get("--input_type="+kind, "--input_file="+file(t, "inst", text), "--batch_size=5")
		got, err := tfserving.Strings(nil, in["instances"], 9)
		if err != nil || len(got) != 5 || !bytes.Equal(got[4], raw) {
			t.Errorf("%s: %v, %x", kind, err, got)
		}
	}
	framing := instances.Framing{SortID: true}
	records := framing.Append(framing.Append(nil, raw), nil)
	in := get("--input_type=instance", "--has_sort_id", "--input_file="+file(t, "inst.pb", records))
	if got, err := tfserving.Strings(nil, in["instances"], 9); err != nil || len(got) != 2 || !bytes.Equal(got[0], raw) {
		t.Errorf("records: %v, %x", err, got)
	}
	in = get("--input_type=instance", "--slot=9", "--batch_size=256") // random, as the original's test asks for
	if n, err := tfserving.Rows(in["instances"], 1000); err != nil || n != 256 || in["instances"].GetDtype() != 7 {
		t.Errorf("%d random instances, %v", n, err)
	}

	fid := &matrixpb.Feature{Type: &matrixpb.Feature_FidV1List{FidV1List: &matrixpb.FidList{Value: []uint64{1<<54 | 2}}}}
	batch := &matrixpb.ExampleBatch{BatchSize: 2, NamedFeatureList: []*matrixpb.NamedFeatureList{{Name: "user", Feature: []*matrixpb.Feature{fid, {}}}}}
	text, err := instances.Text(batch)
	if err != nil {
		t.Fatal(err)
	}
	in = get("--input_type=example_batch_to_instance", "--file_type=pbtxt", "--lagrangex_header", "--input_file="+file(t, "example_batch.pbtxt", text))
	got, err := tfserving.Strings(nil, in["instances"], 9)
	var first idlpb.Instance
	if err != nil || len(got) != 2 || proto.Unmarshal(got[0], &first) != nil || first.GetFeature()[0].GetFid()[0] != 1<<48|2 {
		t.Errorf("a batch as instances: %v, %v", err, &first)
	}
	raw, err = proto.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	lagrange := instances.Framing{LagrangeX: true}
	in = get("--input_type=example_batch", "--lagrangex_header", "--shared_feature=user", "--input_file="+file(t, "b.pb", lagrange.Append(nil, raw)))
	got, err = tfserving.Strings(nil, in["example_batch"], 9)
	var back matrixpb.ExampleBatch
	if err != nil || len(got) != 1 || proto.Unmarshal(got[0], &back) != nil || back.NamedFeatureList[0].GetType() != matrixpb.FeatureListType_SHARED {
		t.Errorf("a batch: %v, %v", err, &back)
	}
}

// Without samples, tensors are drawn as the signature declares them, the same for the same seed.
func TestGetBySignature(t *testing.T) {
	s := &server{}
	at := s.listen(t)
	args := []string{"--target", at, "--model_name=m", "--batch_size=3", "--max_id=9", "--output=pbtxt"}
	if _, err := run(args...); err != nil {
		t.Fatal(err)
	}
	in := s.last(t)
	shapes := map[string][]int64{}
	for name, tensor := range in {
		for _, d := range tensor.GetTensorShape().GetDim() {
			shapes[name] = append(shapes[name], d.GetSize())
		}
	}
	if diff := cmp.Diff(map[string][]int64{"user": {3}, "age": {3, 2}, "small": {3, 1}, "history": {3}, "history/row_splits": {4}}, shapes); diff != "" {
		t.Errorf("shapes (-want +got):\n%s", diff)
	}
	users, err := tfserving.Int64s(nil, in["user"], 3)
	for _, u := range users {
		if u < 1 || u > 9 {
			t.Errorf("user %d", u)
		}
	}
	if splits, _ := tfserving.Int64s(nil, in["history/row_splits"], 4); err != nil || !cmp.Equal(splits, []int64{0, 1, 2, 3}) || len(in["age"].GetFloatVal()) != 6 {
		t.Errorf("%v, splits %v, %v", err, splits, in["age"])
	}
	for args, want := range map[string]string{"--signature_name=texts": "DT_STRING, which is not drawn", "--signature_name=x": `no signature "x": it has serving_default, texts`} {
		if _, err := run("--target", at, "--model_name=m", args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestProfile(t *testing.T) {
	a, b := &server{}, &server{}
	targets := a.listen(t) + "," + b.listen(t)
	out, err := run("profile", "--target", targets, "--model_name=m", "--parallel_num=3", "--profile_count=50", "--json")
	var got summary
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Count != 50 || !(got.P50 > 0 && got.P99 >= got.P50 && got.Max >= got.P99 && got.QPS > 0) {
		t.Errorf("%v, %+v\n%s", err, got, out)
	}
	if len(a.predicts) != 25 || len(b.predicts) != 25 {
		t.Errorf("%d and %d calls; want both servers in turns", len(a.predicts), len(b.predicts))
	}
	dir := filepath.Join(t.TempDir(), "data")
	list := file(t, "feature_list.conf", []byte("feature_name=f_user_id slot=1\n"))
	out, err = run("profile", "--target", targets, "--model_name=m", "--profile_count=1", "--profile_data_dir", dir, "--feature_list", list, "--has_sort_id")
	if err != nil || !strings.HasPrefix(out, "[Profile] Count: 1, Avg Latency: ") || !strings.Contains(out, ", P99 Latency: ") || !strings.Contains(out, ", QPS: ") {
		t.Errorf("%v\n%s", err, out)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != dataFiles {
		t.Errorf("%d files, %v", len(files), err)
	}
	if raw, err := tfserving.Strings(nil, b.last(t)["example_batch"], 2); err != nil || len(raw) != 1 {
		t.Errorf("%d batches, %v", len(raw), err)
	}
	a.fail = 2
	if _, err := run("profile", "--target", targets, "--model_name=m", "--profile_count=10", "--input_type=instance"); err == nil || !strings.Contains(err.Error(), "2 of 10 calls failed: map[ResourceExhausted:2]") {
		t.Errorf("two calls failed: %v", err)
	}
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"x":                             `--cmd_type "x" is none of get`,
		"status load":                   "one command",
		"status":                        "name a model server with --target",
		"--output=x":                    `--output "x"`,
		"--file_type=x":                 `--file_type "x"`,
		"--input_type=pbtext":           "--input_type pbtext needs --input_file",
		"--input_file=x":                "say with --input_type",
		"--input_type=example_batch":    "or --feature_list",
		"--batch_size=0":                "--batch_size is 0",
		"profile --parallel_num=0":      "--parallel_num is 0",
		"profile --profile_duration=0":  "must be positive",
		"profile --profile_data_dir=/x": "needs --feature_list",
		"load --target h:1":             "load needs --input_file",
		"--compat --json":               "exclude each other",
		"status --target h:1":           "name the model",
	} {
		if _, err := run(strings.Fields(args)...); !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
