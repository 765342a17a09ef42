package modelserver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/entry"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

type tensors = map[string]*for_core_protos_go_proto.TensorInfo

func (p predictionService) GetModelMetadata(_ context.Context, req *apis.GetModelMetadataRequest) (*apis.GetModelMetadataResponse, error) {
	if len(req.GetMetadataField()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "GetModelMetadataRequest must specify at least one metadata_field")
	}
	for _, f := range req.GetMetadataField() {
		if f != "signature_def" {
			return nil, status.Errorf(codes.InvalidArgument, "Metadata field %s is not supported", f)
		}
	}
	var version int64
	var all map[string]*for_core_protos_go_proto.SignatureDef
	if m, err := p.s.servables.Shard(req.GetModelSpec()); err == nil && m != nil {
		version, all = m.Version, rowSignatures(m)
	} else {
		versions, err := p.s.servables.Entries(req.GetModelSpec())
		if err != nil {
			return nil, err
		}
		version, all = versions[0].Version(), signatures(versions[0])
	}
	body, err := anypb.New(&apis.SignatureDefMap{SignatureDef: all})
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &apis.GetModelMetadataResponse{
		ModelSpec: tfserving.Spec(req.GetModelSpec().GetName(), version),
		Metadata:  map[string]*anypb.Any{"signature_def": body},
	}, nil
}

// signatures are what may be asked of a model: all of its outputs by Predict, and each by itself, as a
// class or a number, of tf.train.Examples.
func signatures(m *entry.Model) map[string]*for_core_protos_go_proto.SignatureDef {
	all := map[string]*for_core_protos_go_proto.SignatureDef{}
	def := &for_core_protos_go_proto.SignatureDef{Inputs: tensors{}, Outputs: tensors{}, MethodName: tfserving.MethodPredict}
	for _, in := range m.Inputs() {
		if in.Dim > 1 {
			def.Inputs[in.Name] = tensorInfo(in.Name, in.Dtype, int64(in.Dim))
			continue
		}
		def.Inputs[in.Name] = tensorInfo(in.Name, in.Dtype)
	}
	for i, name := range m.Outputs() {
		def.Outputs[name] = tensorInfo(name, types_go_proto.DataType_DT_FLOAT)
		method, outputs := tfserving.MethodRegress, tensors{"outputs": tensorInfo(name, types_go_proto.DataType_DT_FLOAT)}
		if m.Probability(i) {
			method = tfserving.MethodClassify
			outputs = tensors{"classes": tensorInfo(name+"/classes", types_go_proto.DataType_DT_STRING, 2), "scores": tensorInfo(name+"/scores", types_go_proto.DataType_DT_FLOAT, 2)}
		}
		all[name] = &for_core_protos_go_proto.SignatureDef{MethodName: method, Outputs: outputs,
			Inputs: tensors{"inputs": tensorInfo("examples", types_go_proto.DataType_DT_STRING)}}
	}
	all[tfserving.DefaultSignature] = def
	return all
}

// tensorInfo declares a tensor of any number of rows.
func tensorInfo(name string, dtype types_go_proto.DataType, dims ...int64) *for_core_protos_go_proto.TensorInfo {
	shape := &tensor_shape_go_proto.TensorShapeProto{Dim: []*tensor_shape_go_proto.TensorShapeProto_Dim{{Size: -1}}}
	for _, d := range dims {
		shape.Dim = append(shape.Dim, &tensor_shape_go_proto.TensorShapeProto_Dim{Size: d})
	}
	return &for_core_protos_go_proto.TensorInfo{
		Encoding: &for_core_protos_go_proto.TensorInfo_Name{Name: name + ":0"}, Dtype: dtype, TensorShape: shape,
	}
}
