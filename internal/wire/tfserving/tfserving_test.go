package tfserving_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// echo answers a Predict with its inputs.
type echo struct {
	tfserving.UnimplementedPrediction
}

func (echo) Predict(_ context.Context, r *apis.PredictRequest) (*apis.PredictResponse, error) {
	return &apis.PredictResponse{ModelSpec: r.GetModelSpec(), Outputs: r.GetInputs()}, nil
}

func (echo) GetModelStatus(_ context.Context, r *apis.GetModelStatusRequest) (*apis.GetModelStatusResponse, error) {
	return nil, status.Errorf(codes.NotFound, "no %s", r.GetModelSpec().GetName())
}

func (echo) HandleReloadConfigRequest(_ context.Context, r *apis.ReloadConfigRequest) (*apis.ReloadConfigResponse, error) {
	if _, err := tfserving.Models(r.GetConfig()); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &apis.ReloadConfigResponse{}, nil
}

func TestServicesOverTheWire(t *testing.T) {
	for _, intercepted := range []bool{false, true} {
		var seen []string
		var opts []grpc.ServerOption
		if intercepted {
			opts = append(opts, grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				seen = append(seen, info.FullMethod)
				return next(ctx, req)
			}))
		}
		srv := grpc.NewServer(opts...)
		tfserving.RegisterPrediction(srv, echo{})
		tfserving.RegisterModel(srv, echo{})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = srv.Serve(ln) }()
		cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		p, m := tfserving.NewPredictionClient(cc), tfserving.NewModelClient(cc)
		req := &apis.PredictRequest{ModelSpec: tfserving.Spec("m", 3), Inputs: map[string]*tfserving.TensorProto{"x": tfserving.NewInt64([]int64{1, -2}, 2, 1)}}
		res, err := p.Predict(t.Context(), req)
		if err != nil || !proto.Equal(res.GetOutputs()["x"], req.GetInputs()["x"]) || res.GetModelSpec().GetVersion().GetValue() != 3 {
			t.Errorf("Predict = %v, %v", res, err)
		}
		if _, err := p.Classify(t.Context(), &apis.ClassificationRequest{}); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "Predict") {
			t.Errorf("Classify = %v", err)
		}
		if _, err := p.GetModelMetadata(t.Context(), &apis.GetModelMetadataRequest{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("GetModelMetadata = %v", err)
		}
		for _, method := range []string{"Regress", "MultiInference"} {
			err := cc.Invoke(t.Context(), "/"+tfserving.PredictionService+"/"+method, &apis.PredictRequest{}, &apis.PredictResponse{})
			if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), method) {
				t.Errorf("%s = %v", method, err)
			}
		}
		stream, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+tfserving.PredictionService+"/PredictStreamed")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&apis.PredictResponse{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("PredictStreamed = %v", err)
		}
		if _, err := m.GetModelStatus(t.Context(), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec("gone", 0)}); status.Code(err) != codes.NotFound {
			t.Errorf("GetModelStatus = %v", err)
		}
		if _, err := m.HandleReloadConfigRequest(t.Context(), &apis.ReloadConfigRequest{Config: tfserving.Config()}); err != nil {
			t.Errorf("HandleReloadConfigRequest = %v", err)
		}
		if intercepted && !slices.Contains(seen, "/tensorflow.serving.PredictionService/Predict") {
			t.Errorf("the interceptor saw %q", seen)
		}
		_ = cc.Close()
		srv.Stop()
	}
}

func content(v ...int64) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

func shape(dims ...int64) *tensor_shape_go_proto.TensorShapeProto {
	s := &tensor_shape_go_proto.TensorShapeProto{}
	for _, d := range dims {
		s.Dim = append(s.Dim, &tensor_shape_go_proto.TensorShapeProto_Dim{Size: d})
	}
	return s
}

func TestInt64s(t *testing.T) {
	const limit = 8
	i64, i32 := types_go_proto.DataType_DT_INT64, types_go_proto.DataType_DT_INT32
	for name, tc := range map[string]struct {
		t    *tfserving.TensorProto
		want []int64
		bad  string
	}{
		"values":           {t: tfserving.NewInt64([]int64{1, -2, math.MinInt64}), want: []int64{1, -2, math.MinInt64}},
		"content":          {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(2), TensorContent: content(7, -8)}, want: []int64{7, -8}},
		"filled up":        {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(3), Int64Val: []int64{5}}, want: []int64{5, 5, 5}},
		"int32":            {t: &tfserving.TensorProto{Dtype: i32, TensorShape: shape(2), IntVal: []int32{3, -4}}, want: []int64{3, -4}},
		"int32 content":    {t: &tfserving.TensorProto{Dtype: i32, TensorShape: shape(1), TensorContent: []byte{0xff, 0xff, 0xff, 0xff}}, want: []int64{-1}},
		"scalar":           {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(), Int64Val: []int64{9}}, want: []int64{9}},
		"empty":            {t: tfserving.NewInt64(nil, 0), want: nil},
		"nil":              {t: nil, bad: "DT_INVALID"},
		"wrong type":       {t: tfserving.NewFloat([]float32{1}), bad: "DT_FLOAT"},
		"too many":         {t: tfserving.NewInt64(make([]int64, 9)), bad: "8 elements"},
		"huge shape":       {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(math.MaxInt64, 2), Int64Val: []int64{1}}, bad: "8 elements"},
		"overflowing":      {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(8, 8, 8), Int64Val: []int64{1}}, bad: "8 elements"},
		"huge beside zero": {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(0, math.MaxInt64)}, bad: "8 elements"},
		"negative":         {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(-1), Int64Val: []int64{1}}, bad: "-1"},
		"unknown rank":     {t: &tfserving.TensorProto{Dtype: i64, TensorShape: &tensor_shape_go_proto.TensorShapeProto{UnknownRank: true}}, bad: "rank"},
		"deep":             {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(1, 1, 1, 1, 1, 1, 1, 1, 1), Int64Val: []int64{1}}, bad: "dimensions"},
		"more than shape":  {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(1), Int64Val: []int64{1, 2}}, bad: "2 values"},
		"no values":        {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(2)}, bad: "no values"},
		"short content":    {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(2), TensorContent: content(1)}, bad: "16"},
		"odd content":      {t: &tfserving.TensorProto{Dtype: i64, TensorShape: shape(1), TensorContent: []byte{1, 2, 3}}, bad: "3 bytes"},
	} {
		got, err := tfserving.Int64s(nil, tc.t, limit)
		if tc.bad == "" && (err != nil || !slices.Equal(got, tc.want)) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, tc.want)
		}
		if tc.bad != "" && (err == nil || !strings.Contains(err.Error(), tc.bad)) {
			t.Errorf("%s: %v, %v; want an error with %q", name, got, err, tc.bad)
		}
	}
}

func TestFloats(t *testing.T) {
	f32 := types_go_proto.DataType_DT_FLOAT
	got, err := tfserving.Floats([]float32{9}, &tfserving.TensorProto{Dtype: f32, TensorShape: shape(2, 1), TensorContent: []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}}, 8)
	if err != nil || !slices.Equal(got, []float32{9, 1, -2}) {
		t.Errorf("content: %v, %v", got, err)
	}
	if got, err := tfserving.Floats(nil, tfserving.NewFloat([]float32{0.5}, 1, 1), 8); err != nil || !slices.Equal(got, []float32{0.5}) {
		t.Errorf("values: %v, %v", got, err)
	}
	if _, err := tfserving.Floats(nil, tfserving.NewInt64([]int64{1}), 8); err == nil {
		t.Error("integers pass as floats")
	}
	if _, err := tfserving.Floats(nil, &tfserving.TensorProto{Dtype: f32, TensorShape: shape(2), TensorContent: []byte{0, 0, 0, 0}}, 8); err == nil {
		t.Error("short content passes")
	}
}

func TestRows(t *testing.T) {
	if n, err := tfserving.Rows(tfserving.NewInt64(make([]int64, 6), 3, 2), 8); n != 3 || err != nil {
		t.Errorf("[3, 2]: %d, %v", n, err)
	}
	if _, err := tfserving.Rows(&tfserving.TensorProto{TensorShape: shape()}, 8); err == nil {
		t.Error("a scalar has rows")
	}
}

func TestConfigThereAndBack(t *testing.T) {
	models := []tfserving.Model{
		{Name: "m:entry", BasePath: "/a/entry", Policy: tfserving.Policy{Latest: 1}},
		{Name: "m:ps_0", BasePath: "/a/ps_0", Policy: tfserving.Policy{Versions: []int64{3, 5}}, Labels: map[string]int64{"stable": 3, "canary": 5}},
		{Name: "all", BasePath: "/b", Policy: tfserving.Policy{All: true}},
		{Name: "two", BasePath: "/c", Policy: tfserving.Policy{Latest: 2}},
	}
	back, err := tfserving.Models(tfserving.Config(models...))
	if err != nil {
		t.Fatal(err)
	}
	for i := range models {
		a, b := models[i], back[i]
		if a.Name != b.Name || a.BasePath != b.BasePath || a.Policy.All != b.Policy.All || a.Policy.Latest != b.Policy.Latest || !slices.Equal(a.Policy.Versions, b.Policy.Versions) || !maps.Equal(a.Labels, b.Labels) {
			t.Errorf("%+v came back as %+v", a, b)
		}
	}
	unset := &config_go_proto.ModelServerConfig{Config: &config_go_proto.ModelServerConfig_ModelConfigList{ModelConfigList: &config_go_proto.ModelConfigList{
		Config: []*config_go_proto.ModelConfig{{Name: "x", BasePath: "/x/"}}}}}
	if back, err := tfserving.Models(unset); err != nil || back[0].Policy.Latest != 1 || back[0].BasePath != "/x" {
		t.Errorf("without a policy: %+v, %v", back, err)
	}
	for name, c := range map[string]*config_go_proto.ModelServerConfig{
		"nothing":       nil,
		"custom":        {Config: &config_go_proto.ModelServerConfig_CustomModelConfig{}},
		"no name":       tfserving.Config(tfserving.Model{BasePath: "/x"}),
		"no base path":  tfserving.Config(tfserving.Model{Name: "x"}),
		"twice":         tfserving.Config(tfserving.Model{Name: "x", BasePath: "/x"}, tfserving.Model{Name: "x", BasePath: "/y"}),
		"too many":      tfserving.Config(make([]tfserving.Model, tfserving.MaxModels+1)...),
		"no label":      tfserving.Config(tfserving.Model{Name: "x", BasePath: "/x", Labels: map[string]int64{"": 1}}),
		"label of none": tfserving.Config(tfserving.Model{Name: "x", BasePath: "/x", Labels: map[string]int64{"stable": 0}}),
		"long name":     tfserving.Config(tfserving.Model{Name: strings.Repeat("x", tfserving.MaxName+1), BasePath: "/x"}),
		"other runtime": {Config: &config_go_proto.ModelServerConfig_ModelConfigList{ModelConfigList: &config_go_proto.ModelConfigList{Config: []*config_go_proto.ModelConfig{{Name: "x", BasePath: "/x", ModelPlatform: "caffe"}}}}},
	} {
		if m, err := tfserving.Models(c); err == nil {
			t.Errorf("%s: %+v passes", name, m)
		}
	}
}

func TestParsePath(t *testing.T) {
	for path, want := range map[string]tfserving.RESTRequest{
		"/v1/models/m":                           {Model: "m"},
		"/v1/models/m/versions/7":                {Model: "m", Version: 7},
		"/v1/models/m:predict":                   {Model: "m", Verb: "predict"},
		"/v1/models/m:entry":                     {Model: "m:entry"},
		"/v1/models/m:entry:predict":             {Model: "m:entry", Verb: "predict"},
		"/v1/models/m:ps_0/versions/3":           {Model: "m:ps_0", Version: 3},
		"/v1/models/m/versions/7:predict":        {Model: "m", Version: 7, Verb: "predict"},
		"/v1/models/m:a/versions/70:classify":    {Model: "m:a", Version: 70, Verb: "classify"},
		"/v1/models/m/metadata":                  {Model: "m", Metadata: true},
		"/v1/models/m:entry/versions/7/metadata": {Model: "m:entry", Version: 7, Metadata: true},
		"/v1/models/m/labels/canary:predict":     {Model: "m", Label: "canary", Verb: "predict"},
		"/v1/models/m/labels/stable":             {Model: "m", Label: "stable"},
		"/v1/models/m/labels/stable/metadata":    {Model: "m", Label: "stable", Metadata: true},
	} {
		if got, err := tfserving.ParsePath(path); err != nil || got != want {
			t.Errorf("%s = %+v, %v; want %+v", path, got, err, want)
		}
	}
	for _, path := range []string{"", "/", "/v1/models/", "/v1/models/:predict", "/v1/models/m/versions/", "/v1/models/m/versions/x", "/v1/models/m/versions/-1",
		"/v1/models/m/versions/0", "/v1/models/a/b", "/v1/models/m/labels/", "/v1/models/m/labels/a/b", "/v1/models/metadata:predict/x", "/v1/models//metadata", "/v1/models/" + strings.Repeat("x", tfserving.MaxName+1)} {
		if got, err := tfserving.ParsePath(path); err == nil {
			t.Errorf("%q = %+v; want an error", path, got)
		}
	}
}

var (
	one = []tfserving.Input{{Name: "x", Dtype: types_go_proto.DataType_DT_FLOAT}}
	two = []tfserving.Input{{Name: "user", Dtype: types_go_proto.DataType_DT_INT64}, {Name: "movie", Dtype: types_go_proto.DataType_DT_INT64}}
)

func TestDecodePredict(t *testing.T) {
	for name, tc := range map[string]struct {
		body   string
		inputs []tfserving.Input
		want   map[string]*tfserving.TensorProto
		column bool
	}{
		"rows":         {`{"instances":[{"user":1,"movie":2},{"user":-3,"movie":4}]}`, two, map[string]*tfserving.TensorProto{"user": tfserving.NewInt64([]int64{1, -3}), "movie": tfserving.NewInt64([]int64{2, 4})}, false},
		"[n,1] rows":   {`{"instances":[{"user":[1],"movie":[2]}]}`, two, map[string]*tfserving.TensorProto{"user": tfserving.NewInt64([]int64{1}, 1, 1), "movie": tfserving.NewInt64([]int64{2}, 1, 1)}, false},
		"bare rows":    {`{"instances":[1.0, 2.5, 5]}`, one, map[string]*tfserving.TensorProto{"x": tfserving.NewFloat([]float32{1, 2.5, 5})}, false},
		"nested rows":  {`{"instances":[[1,2],[3,4]]}`, one, map[string]*tfserving.TensorProto{"x": tfserving.NewFloat([]float32{1, 2, 3, 4}, 2, 2)}, false},
		"columns":      {`{"inputs":{"user":[1,2],"movie":[[3],[4]]}}`, two, map[string]*tfserving.TensorProto{"user": tfserving.NewInt64([]int64{1, 2}), "movie": tfserving.NewInt64([]int64{3, 4}, 2, 1)}, true},
		"bare columns": {`{"inputs":[1,2]}`, one, map[string]*tfserving.TensorProto{"x": tfserving.NewFloat([]float32{1, 2})}, true},
		"greatest id":  {`{"inputs":{"user":[9223372036854775807],"movie":[-9223372036854775808]}}`, two, map[string]*tfserving.TensorProto{"user": tfserving.NewInt64([]int64{math.MaxInt64}), "movie": tfserving.NewInt64([]int64{math.MinInt64})}, true},
	} {
		got, err := tfserving.DecodePredict(strings.NewReader(tc.body), tc.inputs, 16)
		if err != nil || got.Columnar != tc.column || len(got.Inputs) != len(tc.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		for in, want := range tc.want {
			if !proto.Equal(got.Inputs[in], want) {
				t.Errorf("%s: input %s is %v, want %v", name, in, got.Inputs[in], want)
			}
		}
	}
	got, err := tfserving.DecodePredict(strings.NewReader(`{"instances":[1],"signature_name":"s","other":{"a":[1,{"b":null}]}}`), one, 16)
	if err != nil || got.Signature != "s" {
		t.Errorf("signature %q, %v", got.Signature, err)
	}
	for name, tc := range map[string]struct {
		body   string
		inputs []tfserving.Input
	}{
		"empty":                  {``, two},
		"cut short":              {`{"instances":[`, two},
		"two values":             {`{"instances":[1]}{}`, one},
		"neither":                {`{"rows":[]}`, two},
		"both":                   {`{"instances":[1],"inputs":[1]}`, one},
		"no instances":           {`{"instances":[]}`, one},
		"instances is no list":   {`{"instances":{"x":1}}`, one},
		"null instances":         {`{"instances":null}`, one},
		"unnamed of two":         {`{"instances":[1]}`, two},
		"missing input":          {`{"instances":[{"user":1}]}`, two},
		"unknown input":          {`{"instances":[{"user":1,"movie":2,"age":3}]}`, two},
		"unknown column":         {`{"inputs":{"user":[1],"movie":[2],"age":[3]}}`, two},
		"missing column":         {`{"inputs":{"user":[1]}}`, two},
		"a fraction for an id":   {`{"instances":[{"user":1.5,"movie":2}]}`, two},
		"an id too great":        {`{"inputs":{"user":[9223372036854775808],"movie":[1]}}`, two},
		"a float too great":      {`{"instances":[1e39]}`, one},
		"a string":               {`{"instances":[{"user":"1","movie":2}]}`, two},
		"null":                   {`{"instances":[{"user":null,"movie":2}]}`, two},
		"kinds mixed":            {`{"instances":[{"x":1},2]}`, one},
		"ragged rows":            {`{"instances":[[1,2],[3]]}`, one},
		"ragged depth":           {`{"instances":[[1],2]}`, one},
		"ragged depth downwards": {`{"instances":[1,[2]]}`, one},
		"ragged columns":         {`{"inputs":[[1],2]}`, one},
		"ragged columns, empty":  {`{"inputs":[[],1]}`, one},
		"too many rows":          {`{"instances":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}`, one},
		"too many in columns":    {`{"inputs":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}`, one},
		"an input twice":         {`{"instances":[{"user":1,"user":2,"movie":2}]}`, two},
		"a column twice":         {`{"inputs":{"user":[1],"user":[1],"movie":[2]}}`, two},
		"instances twice":        {`{"instances":[1],"instances":[1]}`, one},
		"a list at the top":      {`[1]`, one},
		"a signature of 5":       {`{"signature_name":5,"instances":[1]}`, one},
		"ragged, longer":         {`{"instances":[[1,2],[3,4,5]]}`, one},
		"ragged, later":          {`{"inputs":[[[1],[2]],[[3],[4,5]]]}`, one},
		"skipped too deep":       {`{"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `,"instances":[1]}`, one},
		"not closed":             {`{"instances":[1]`, one},
		"an object for a number": {`{"instances":[{"user":{"a":1},"movie":2}]}`, two},
		"too deep":               {`{"inputs":[[[[[[[[[1]]]]]]]]]}`, one},
	} {
		if got, err := tfserving.DecodePredict(strings.NewReader(tc.body), tc.inputs, 16); err == nil {
			t.Errorf("%s: %+v; want an error", name, got)
		}
	}
}

// The layouts are the original's, to the byte.
func TestEncodings(t *testing.T) {
	for _, tc := range []struct {
		columnar bool
		scores   []float32
		want     string
	}{
		{false, []float32{2.5, 3, 4.5}, "{\n    \"predictions\": [2.5, 3.0, 4.5\n    ]\n}"},
		{true, []float32{0.71000004}, "{\n    \"outputs\": [0.71000004\n    ]\n}"},
		{false, []float32{1e-10, -1e21}, "{\n    \"predictions\": [1e-10, -1e+21\n    ]\n}"},
	} {
		got, err := tfserving.EncodePredict(tc.columnar, map[string]*tfserving.TensorProto{"score": tfserving.NewFloat(tc.scores)})
		if err != nil || string(got) != tc.want {
			t.Errorf("%v: %s, %v; want %s", tc.scores, got, err, tc.want)
		}
		var back map[string][]float32
		if err := json.Unmarshal(got, &back); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		for _, v := range back {
			if !slices.Equal(v, tc.scores) {
				t.Errorf("%v came back as %v", tc.scores, v)
			}
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		if got, err := tfserving.EncodePredict(false, map[string]*tfserving.TensorProto{"score": tfserving.NewFloat([]float32{float32(v)})}); err == nil {
			t.Errorf("%v is written as %s", v, got)
		}
	}
	status := tfserving.EncodeStatus(&apis.GetModelStatusResponse{ModelVersionStatus: []*apis.ModelVersionStatus{{Version: 3, State: apis.ModelVersionStatus_END,
		Status: &apis.StatusProto{ErrorCode: for_core_protos_go_proto.Code_DATA_LOSS, ErrorMessage: `"a" < b`}}}})
	if want := "{\n \"model_version_status\": [\n  {\n   \"version\": \"3\",\n   \"state\": \"END\",\n   \"status\": {\n    \"error_code\": \"DATA_LOSS\",\n    \"error_message\": \"\\\"a\\\" < b\"\n   }\n  }\n ]\n}\n"; string(status) != want {
		t.Errorf("status\n%s\nwant\n%s", status, want)
	}
	if got, want := string(tfserving.EncodeError("a\n\"b\" <c>")), `{ "error": "a\n\"b\" <c>" }`; got != want {
		t.Errorf("error %s, want %s", got, want)
	}
	for code, want := range map[codes.Code]int{codes.OK: 200, codes.NotFound: 404, codes.InvalidArgument: 400, codes.Unavailable: 503, codes.DeadlineExceeded: 408, codes.Unimplemented: 501, codes.Internal: 500, codes.DataLoss: 500} {
		if got := tfserving.HTTPStatus(code); got != want {
			t.Errorf("%v is answered with %d, want %d", code, got, want)
		}
	}
}

func FuzzTensor(f *testing.F) {
	for _, t := range []*tfserving.TensorProto{
		tfserving.NewInt64([]int64{1, 2}, 2, 1), tfserving.NewFloat([]float32{1}), {Dtype: types_go_proto.DataType_DT_INT64, TensorShape: shape(2), TensorContent: content(1, 2)},
		{Dtype: types_go_proto.DataType_DT_INT32, TensorShape: shape(3), IntVal: []int32{1}}, {TensorShape: shape(math.MaxInt64, math.MaxInt64)},
	} {
		b, err := proto.Marshal(t)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var tensor tfserving.TensorProto
		if proto.Unmarshal(data, &tensor) != nil {
			return
		}
		const limit = 64
		rows, rowsErr := tfserving.Rows(&tensor, limit)
		ids, err := tfserving.Int64s(nil, &tensor, limit)
		if err == nil {
			if len(ids) > limit {
				t.Fatalf("%d elements", len(ids))
			}
			if rowsErr == nil && rows > 0 && len(ids)%rows != 0 {
				t.Fatalf("%d elements in %d rows", len(ids), rows)
			}
			again, err := tfserving.Int64s(nil, tfserving.NewInt64(ids, int64(len(ids))), limit)
			if err != nil || !slices.Equal(again, ids) {
				t.Fatalf("%v came back as %v, %v", ids, again, err)
			}
		}
		if floats, err := tfserving.Floats(nil, &tensor, limit); err == nil && len(floats) > limit {
			t.Fatalf("%d elements", len(floats))
		}
	})
}

func FuzzPredictJSON(f *testing.F) {
	for _, s := range []string{`{"instances":[{"user":1,"movie":2}]}`, `{"inputs":{"user":[[1],[2]],"movie":[3,4]}}`, `{"signature_name":"x","instances":[[1]]}`,
		`{"inputs":[]}`, `{"instances":[{"user":[],"movie":[[]]}]}`, `[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		const limit = 32
		p, err := tfserving.DecodePredict(bytes.NewReader(body), two, limit)
		if err != nil {
			return
		}
		for _, in := range two {
			ids, err := tfserving.Int64s(nil, p.Inputs[in.Name], limit)
			if err != nil {
				t.Fatalf("input %s decodes to what is refused: %v", in.Name, err)
			}
			if len(ids) > limit {
				t.Fatalf("%d elements", len(ids))
			}
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"/v1/models/m", "/v1/models/m:entry/versions/3:predict", "/v1/models/:::predict"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		r, err := tfserving.ParsePath(path)
		if err == nil && (r.Model == "" || r.Version < 0) {
			t.Fatalf("%q is %+v", path, r)
		}
	})
}
