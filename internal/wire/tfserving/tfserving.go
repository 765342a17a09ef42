// Package tfserving is TensorFlow Serving's outside: the two gRPC services, tensors as
// they travel, the REST codec and the model configuration, on the original's messages.
// It serves nothing itself; modelserver implements the interfaces, and whoever talks to
// a model server, ours or the original, uses the clients.
package tfserving

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// The full names of the services; a method is "/" + service + "/" + method.
const (
	PredictionService = "tensorflow.serving.PredictionService"
	ModelService      = "tensorflow.serving.ModelService"
)

// DefaultSignature is the signature a request means when it names none.
const DefaultSignature = "serving_default"

// PredictionServer answers PredictionService. Embed [UnimplementedPrediction] for the
// methods that are not served.
type PredictionServer interface {
	Predict(context.Context, *apis.PredictRequest) (*apis.PredictResponse, error)
	GetModelMetadata(context.Context, *apis.GetModelMetadataRequest) (*apis.GetModelMetadataResponse, error)
	Classify(context.Context, *apis.ClassificationRequest) (*apis.ClassificationResponse, error)
	Regress(context.Context, *apis.RegressionRequest) (*apis.RegressionResponse, error)
	MultiInference(context.Context, *apis.MultiInferenceRequest) (*apis.MultiInferenceResponse, error)
}

// ModelServer answers ModelService.
type ModelServer interface {
	GetModelStatus(context.Context, *apis.GetModelStatusRequest) (*apis.GetModelStatusResponse, error)
	HandleReloadConfigRequest(context.Context, *apis.ReloadConfigRequest) (*apis.ReloadConfigResponse, error)
}

// UnimplementedPrediction refuses every method with UNIMPLEMENTED and a sentence that
// names what is served instead.
type UnimplementedPrediction struct{}

func unimplemented(method string) error {
	return status.Errorf(codes.Unimplemented, "%s is not served here; send Predict with one tensor per input", method)
}

func (UnimplementedPrediction) Predict(context.Context, *apis.PredictRequest) (*apis.PredictResponse, error) {
	return nil, status.Error(codes.Unimplemented, "Predict is not served here")
}

func (UnimplementedPrediction) GetModelMetadata(context.Context, *apis.GetModelMetadataRequest) (*apis.GetModelMetadataResponse, error) {
	return nil, unimplemented("GetModelMetadata")
}

func (UnimplementedPrediction) Classify(context.Context, *apis.ClassificationRequest) (*apis.ClassificationResponse, error) {
	return nil, unimplemented("Classify")
}

func (UnimplementedPrediction) Regress(context.Context, *apis.RegressionRequest) (*apis.RegressionResponse, error) {
	return nil, unimplemented("Regress")
}

func (UnimplementedPrediction) MultiInference(context.Context, *apis.MultiInferenceRequest) (*apis.MultiInferenceResponse, error) {
	return nil, unimplemented("MultiInference")
}

// RegisterPrediction serves srv on s.
func RegisterPrediction(s grpc.ServiceRegistrar, srv PredictionServer) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: PredictionService,
		HandlerType: (*PredictionServer)(nil),
		Methods: []grpc.MethodDesc{
			guardedMethod(PredictionService, "Predict", nameOfSpec, PredictionServer.Predict),
			method(PredictionService, "GetModelMetadata", PredictionServer.GetModelMetadata),
			guardedMethod(PredictionService, "Classify", nameOfSpec, PredictionServer.Classify),
			guardedMethod(PredictionService, "Regress", nameOfSpec, PredictionServer.Regress),
			guardedMethod(PredictionService, "MultiInference", nameOfTask, PredictionServer.MultiInference),
		},
		Streams: []grpc.StreamDesc{{
			StreamName:    "PredictStreamed",
			ServerStreams: true,
			ClientStreams: true,
			Handler: func(any, grpc.ServerStream) error {
				return unimplemented("PredictStreamed")
			},
		}},
		Metadata: "tensorflow_serving/apis/prediction_service.proto",
	}, srv)
}

// RegisterModel serves srv on s.
func RegisterModel(s grpc.ServiceRegistrar, srv ModelServer) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: ModelService,
		HandlerType: (*ModelServer)(nil),
		Methods: []grpc.MethodDesc{
			method(ModelService, "GetModelStatus", ModelServer.GetModelStatus),
			method(ModelService, "HandleReloadConfigRequest", ModelServer.HandleReloadConfigRequest),
		},
		Metadata: "tensorflow_serving/apis/model_service.proto",
	}, srv)
}

// method describes one unary method of a service whose server type is S.
func method[S any, Q, R any](service, name string, call func(S, context.Context, *Q) (*R, error)) grpc.MethodDesc {
	return guardedMethod(service, name, nil, call)
}

// guardedMethod is a method whose requests an [Admitter] may refuse by the model that at names.
func guardedMethod[S any, Q, R any](service, name string, at []hop, call func(S, context.Context, *Q) (*R, error)) grpc.MethodDesc {
	full := "/" + service + "/" + name
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (answer any, err error) {
			in := new(Q)
			if door, ok := srv.(Admitter); ok && at != nil {
				leave := func(bool) {}
				defer func() { leave(err == nil) }()
				g := &guarded{into: any(in).(proto.Message), name: at, admit: func(model string) error {
					left, err := door.Admit(ctx, model)
					if err == nil {
						leave = left
					}
					return err
				}}
				if err := cmp.Or(decode(g), g.refused); err != nil {
					return nil, err
				}
			} else if err := decode(in); err != nil {
				return nil, err
			}
			if interceptor == nil {
				return call(srv.(S), ctx, in)
			}
			info := &grpc.UnaryServerInfo{Server: srv, FullMethod: full}
			return interceptor(ctx, in, info, func(ctx context.Context, req any) (any, error) {
				return call(srv.(S), ctx, req.(*Q))
			})
		},
	}
}

// PredictionClient calls PredictionService; the connection stays the caller's.
type PredictionClient struct{ cc grpc.ClientConnInterface }

// NewPredictionClient returns a client on cc.
func NewPredictionClient(cc grpc.ClientConnInterface) *PredictionClient {
	return &PredictionClient{cc: cc}
}

func (c *PredictionClient) Predict(ctx context.Context, in *apis.PredictRequest, opts ...grpc.CallOption) (*apis.PredictResponse, error) {
	return invoke(ctx, c.cc, PredictionService, "Predict", in, new(apis.PredictResponse), opts)
}

func (c *PredictionClient) GetModelMetadata(ctx context.Context, in *apis.GetModelMetadataRequest, opts ...grpc.CallOption) (*apis.GetModelMetadataResponse, error) {
	return invoke(ctx, c.cc, PredictionService, "GetModelMetadata", in, new(apis.GetModelMetadataResponse), opts)
}

func (c *PredictionClient) Classify(ctx context.Context, in *apis.ClassificationRequest, opts ...grpc.CallOption) (*apis.ClassificationResponse, error) {
	return invoke(ctx, c.cc, PredictionService, "Classify", in, new(apis.ClassificationResponse), opts)
}

// ModelClient calls ModelService; the connection stays the caller's.
type ModelClient struct{ cc grpc.ClientConnInterface }

// NewModelClient returns a client on cc.
func NewModelClient(cc grpc.ClientConnInterface) *ModelClient { return &ModelClient{cc: cc} }

func (c *ModelClient) GetModelStatus(ctx context.Context, in *apis.GetModelStatusRequest, opts ...grpc.CallOption) (*apis.GetModelStatusResponse, error) {
	return invoke(ctx, c.cc, ModelService, "GetModelStatus", in, new(apis.GetModelStatusResponse), opts)
}

func (c *ModelClient) HandleReloadConfigRequest(ctx context.Context, in *apis.ReloadConfigRequest, opts ...grpc.CallOption) (*apis.ReloadConfigResponse, error) {
	return invoke(ctx, c.cc, ModelService, "HandleReloadConfigRequest", in, new(apis.ReloadConfigResponse), opts)
}

func invoke[R proto.Message](ctx context.Context, cc grpc.ClientConnInterface, service, name string, in proto.Message, out R, opts []grpc.CallOption) (R, error) {
	if err := cc.Invoke(ctx, "/"+service+"/"+name, in, out, opts...); err != nil {
		var none R
		return none, err
	}
	return out, nil
}
