package openinference

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/monolith-go/monolith/internal/wire/inferencepb"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// What a client asks is what the server reads, over gRPC and over HTTP.
func TestRequestsThereAndBack(t *testing.T) {
	in := map[string]*tfserving.TensorProto{
		"user": tfserving.NewInt64([]int64{1, 1 << 60}, 2, 1), "age": tfserving.NewFloat([]float32{0.5, -3}), "name": tfserving.NewStrings([][]byte{[]byte("a"), []byte(`"b"`)}),
	}
	m, err := NewRequest("m", 7, in)
	if err != nil || m.GetModelName() != "m" || m.GetModelVersion() != "7" {
		t.Fatalf("%v, %v", m, err)
	}
	over, err := FromProto(m)
	if err != nil {
		t.Fatal(err)
	}
	body, err := EncodeRequest(m)
	if err != nil {
		t.Fatal(err)
	}
	http, err := Decode(bytes.NewReader(body), "")
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	for road, got := range map[string]Request{"gRPC": over, "HTTP": http} {
		for name, want := range in {
			if !proto.Equal(got.Inputs[name], want) {
				t.Errorf("%s: input %s is %v, was %v", road, name, got.Inputs[name], want)
			}
		}
	}
	if m, err := NewRequest("m", 0, nil); err != nil || m.GetModelVersion() != "" {
		t.Errorf("the newest version is asked for as %q, %v", m.GetModelVersion(), err)
	}
	if _, err := NewRequest("m", 0, map[string]*tfserving.TensorProto{"x": {Dtype: types_go_proto.DataType_DT_HALF}}); err == nil {
		t.Error("a half is asked for")
	}
}

// A model's inputs are those of a signature, whichever way they were told.
func TestSignatureOfAModel(t *testing.T) {
	said := NewModel("m", []string{"1"}, []tfserving.Input{{Name: "user", Dtype: types_go_proto.DataType_DT_INT64, List: true}, {Name: "age", Dtype: types_go_proto.DataType_DT_FLOAT, Dim: 3}}, []string{"score"})
	decoded, err := DecodeModel(said.Encode())
	if err != nil {
		t.Fatal(err)
	}
	for road, m := range map[string]*inferencepb.ModelMetadataResponse{"gRPC": said.Proto(), "HTTP": decoded} {
		def := Signature(m.GetInputs())
		user, age := def.GetInputs()["user"], def.GetInputs()["age"]
		if len(def.GetInputs()) != 2 || user.GetDtype() != types_go_proto.DataType_DT_INT64 || len(user.GetTensorShape().GetDim()) != 2 || age.GetDtype() != types_go_proto.DataType_DT_FLOAT || age.GetTensorShape().GetDim()[1].GetSize() != 3 {
			t.Errorf("%s: %v", road, def)
		}
	}
	if _, err := DecodeModel([]byte("<html>")); err == nil {
		t.Error("a page is read as a model")
	}
}
