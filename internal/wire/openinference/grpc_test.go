package openinference

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/internal/wire/inferencepb"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

type (
	pbInput    = inferencepb.ModelInferRequest_InferInputTensor
	pbContents = inferencepb.InferTensorContents
)

// Each datatype is read from its typed field and from bytes alike.
func TestContents(t *testing.T) {
	text := tfserving.NewInt64(nil, 2)
	text.Dtype, text.StringVal = types_go_proto.DataType_DT_STRING, [][]byte{[]byte("ab"), {}}
	for _, tc := range []struct {
		datatype string
		contents *pbContents
		raw      string
		want     *tfserving.TensorProto
	}{
		{"INT64", &pbContents{Int64Contents: []int64{-1, 7}}, "\xff\xff\xff\xff\xff\xff\xff\xff\x07\x00\x00\x00\x00\x00\x00\x00", tfserving.NewInt64([]int64{-1, 7}, 2)},
		{"INT32", &pbContents{IntContents: []int32{-2, 7}}, "\xfe\xff\xff\xff\x07\x00\x00\x00", tfserving.NewInt64([]int64{-2, 7}, 2)},
		{"INT8", &pbContents{IntContents: []int32{-2, 7}}, "\xfe\x07", tfserving.NewInt64([]int64{-2, 7}, 2)},
		{"UINT16", &pbContents{UintContents: []uint32{65535, 7}}, "\xff\xff\x07\x00", tfserving.NewInt64([]int64{65535, 7}, 2)},
		{"UINT64", &pbContents{Uint64Contents: []uint64{5, 7}}, "\x05\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00", tfserving.NewInt64([]int64{5, 7}, 2)},
		{"FP32", &pbContents{Fp32Contents: []float32{0.5, 2}}, "\x00\x00\x00\x3f\x00\x00\x00\x40", tfserving.NewFloat([]float32{0.5, 2}, 2)},
		{"FP64", &pbContents{Fp64Contents: []float64{0.5, 2}}, "\x00\x00\x00\x00\x00\x00\xe0\x3f\x00\x00\x00\x00\x00\x00\x00\x40", tfserving.NewFloat([]float32{0.5, 2}, 2)},
		{"BYTES", &pbContents{BytesContents: [][]byte{[]byte("ab"), {}}}, "\x02\x00\x00\x00ab\x00\x00\x00\x00", text},
	} {
		for how, req := range map[string]*inferencepb.ModelInferRequest{
			"contents": {Inputs: []*pbInput{{Name: "x", Datatype: tc.datatype, Shape: []int64{2}, Contents: tc.contents}}},
			"raw":      {Inputs: []*pbInput{{Name: "x", Datatype: tc.datatype, Shape: []int64{2}}}, RawInputContents: [][]byte{[]byte(tc.raw)}},
		} {
			r, err := FromProto(req)
			if err != nil {
				t.Errorf("%s as %s: %v", tc.datatype, how, err)
				continue
			}
			if diff := cmp.Diff(tc.want, r.Inputs["x"], protocmp.Transform()); diff != "" {
				t.Errorf("%s as %s (-want +got):\n%s", tc.datatype, how, diff)
			}
			if r.Binary("y") != (how == "raw") {
				t.Errorf("%s as %s: an answer in bytes is %v", tc.datatype, how, r.Binary("y"))
			}
		}
	}
}

func TestWrongContents(t *testing.T) {
	ids := func(n ...int64) *pbContents { return &pbContents{Int64Contents: n} }
	for _, tc := range []struct {
		says string
		req  *inferencepb.ModelInferRequest
	}{
		{"is there twice", &inferencepb.ModelInferRequest{Inputs: []*pbInput{{Name: "x", Datatype: "INT64", Shape: []int64{1}, Contents: ids(1)}, {Name: "x", Datatype: "INT64", Shape: []int64{1}, Contents: ids(1)}}}},
		{`input "x": its datatype "BOOL" is not taken`, &inferencepb.ModelInferRequest{Inputs: []*pbInput{{Name: "x", Datatype: "BOOL", Shape: []int64{1}}}}},
		{"send the real sizes", &inferencepb.ModelInferRequest{Inputs: []*pbInput{{Name: "x", Datatype: "INT64", Shape: []int64{-1}, Contents: ids(1)}}}},
		{"has 1 elements, its shape [2] holds 2", &inferencepb.ModelInferRequest{Inputs: []*pbInput{{Name: "x", Datatype: "INT64", Shape: []int64{2}, Contents: ids(1)}}}},
		{"put all of them in fp32_contents", &inferencepb.ModelInferRequest{Inputs: []*pbInput{{Name: "x", Datatype: "FP32", Shape: []int64{1}, Contents: ids(1)}}}},
		{"no id", &inferencepb.ModelInferRequest{Inputs: []*pbInput{{Name: "x", Datatype: "UINT64", Shape: []int64{1}, Contents: &pbContents{Uint64Contents: []uint64{math.MaxUint64}}}}}},
		{"send one of them", &inferencepb.ModelInferRequest{Inputs: []*pbInput{{Name: "x", Datatype: "INT64", Shape: []int64{1}, Contents: ids(1)}}, RawInputContents: [][]byte{make([]byte, 8)}}},
		{"2 raw_input_contents came for 1 inputs", &inferencepb.ModelInferRequest{Inputs: []*pbInput{{Name: "x", Datatype: "INT64", Shape: []int64{1}}}, RawInputContents: make([][]byte, 2)}},
		{"no whole elements", &inferencepb.ModelInferRequest{Inputs: []*pbInput{{Name: "x", Datatype: "INT64", Shape: []int64{1}}}, RawInputContents: [][]byte{make([]byte, 7)}}},
	} {
		if _, err := FromProto(tc.req); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%v: %v, want %q", tc.req, err, tc.says)
		}
	}
	for s, want := range map[string]int64{"": 0, "7": 7, "0": -1, "-1": -1, "x": -1} {
		if v, err := ParseVersion(s); (err != nil) != (want < 0) || err == nil && v != want {
			t.Errorf("version %q: %d, %v", s, v, err)
		}
	}
}

// An answer has its numbers in typed fields, or in bytes.
func TestAnswersOverGRPC(t *testing.T) {
	a := Answer{"m", 3, "q", []Output{{"a", []float32{.5, 2}, false}}}
	m := a.Proto()
	if m.GetModelName() != "m" || m.GetModelVersion() != "3" || m.GetId() != "q" || len(m.GetRawOutputContents()) != 0 ||
		!slices.Equal(m.GetOutputs()[0].GetContents().GetFp32Contents(), a.Outputs[0].Values) || m.GetOutputs()[0].GetShape()[0] != 2 {
		t.Errorf("typed: %v", m)
	}
	a.Outputs[0].Binary = true
	m = a.Proto()
	raw := m.GetRawOutputContents()
	if len(raw) != 1 || len(raw[0]) != 8 || math.Float32frombits(binary.LittleEndian.Uint32(raw[0][4:])) != 2 || m.GetOutputs()[0].GetContents() != nil {
		t.Errorf("bytes: %v", m)
	}
}
