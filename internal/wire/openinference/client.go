package openinference

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	"github.com/monolith-go/monolith/internal/wire/inferencepb"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// Signature is what a model takes, as TensorFlow Serving would say it. A datatype that no request
// is made of here becomes DT_INVALID.
func Signature(inputs []*inferencepb.ModelMetadataResponse_TensorMetadata) *for_core_protos_go_proto.SignatureDef {
	def := &for_core_protos_go_proto.SignatureDef{Inputs: map[string]*for_core_protos_go_proto.TensorInfo{}}
	for _, in := range inputs {
		info := &for_core_protos_go_proto.TensorInfo{TensorShape: &tensor_shape_go_proto.TensorShapeProto{}}
		for dtype, name := range datatypes {
			if name == in.GetDatatype() {
				info.Dtype = dtype
			}
		}
		for _, size := range in.GetShape() {
			info.TensorShape.Dim = append(info.TensorShape.Dim, &tensor_shape_go_proto.TensorShapeProto_Dim{Size: size})
		}
		def.Inputs[in.GetName()] = info
	}
	return def
}

// DecodeModel reads what a server says of a model over HTTP.
func DecodeModel(body []byte) (*inferencepb.ModelMetadataResponse, error) {
	var m Model
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("what the server says of the model is no JSON of the open inference protocol: %w", err)
	}
	return m.Proto(), nil
}

// NewRequest asks a model for what it makes of tensors; version 0 is the newest.
func NewRequest(model string, version int64, inputs map[string]*tfserving.TensorProto) (*inferencepb.ModelInferRequest, error) {
	m := &inferencepb.ModelInferRequest{ModelName: model}
	if version != 0 {
		m.ModelVersion = strconv.FormatInt(version, 10)
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		t := inputs[name]
		in := &inferencepb.ModelInferRequest_InferInputTensor{Name: name, Datatype: datatypes[t.GetDtype()]}
		if in.Datatype == "" {
			return nil, fmt.Errorf("input %q is %s, which the open inference protocol has no name for", name, t.GetDtype())
		}
		for _, d := range t.GetTensorShape().GetDim() {
			in.Shape = append(in.Shape, d.GetSize())
		}
		in.Contents = &inferencepb.InferTensorContents{
			Int64Contents: t.GetInt64Val(), IntContents: t.GetIntVal(), BoolContents: t.GetBoolVal(),
			Fp32Contents: t.GetFloatVal(), Fp64Contents: t.GetDoubleVal(), BytesContents: t.GetStringVal(),
		}
		m.Inputs = append(m.Inputs, in)
	}
	return m, nil
}

// EncodeRequest is the HTTP body of a request that NewRequest has made.
func EncodeRequest(m *inferencepb.ModelInferRequest) ([]byte, error) {
	type tensor struct {
		Tensor
		Data any `json:"data"`
	}
	var q struct {
		Inputs []tensor `json:"inputs"`
	}
	for _, in := range m.GetInputs() {
		t := tensor{Tensor: Tensor{in.GetName(), in.GetDatatype(), in.GetShape()}}
		switch c := in.GetContents(); in.GetDatatype() {
		case "INT64":
			t.Data = c.GetInt64Contents()
		case "INT32":
			t.Data = c.GetIntContents()
		case "BOOL":
			t.Data = c.GetBoolContents()
		case number:
			t.Data = c.GetFp32Contents()
		case double:
			t.Data = c.GetFp64Contents()
		default:
			all := make([]string, len(c.GetBytesContents()))
			for i, text := range c.GetBytesContents() {
				all[i] = string(text)
			}
			t.Data = all
		}
		q.Inputs = append(q.Inputs, t)
	}
	return json.Marshal(q)
}
