package modelserver

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const (
	requestIDKey   = "x-request-id"
	impressionKey  = "x-impression" // any value but 0 and false asks for impressions
	traceparentKey = "traceparent"
	maxRequestID   = 256
)

// caller is what a request says about itself, whichever way it came.
type caller struct {
	requestID   string
	traceparent string
	impressions bool // it asks for them
}

// asks reads the value of impressionKey.
func asks(v string) bool { return v != "" && v != "0" && !strings.EqualFold(v, "false") }

// predict answers a Predict; id is set where the answer left impressions.
func (s *Server) predict(ctx context.Context, c caller, req *apis.PredictRequest) (res *apis.PredictResponse, id string, err error) {
	began := time.Now()
	ctx, span := s.env.Tracer.Start(tracectx.With(ctx, c.traceparent), "modelserver.predict", trace.WithSpanKind(trace.SpanKindServer))
	defer func() {
		code := status.Code(err)
		s.metrics.predicts.WithLabelValues(code.String()).Inc()
		s.metrics.seconds.Observe(time.Since(began).Seconds())
		if span.IsRecording() {
			span.SetAttributes(attribute.String("model", req.GetModelSpec().GetName()), attribute.String("request.id", id))
			if err != nil {
				span.SetStatus(otelcodes.Error, err.Error())
			}
		}
		span.End()
	}()
	if len(c.requestID) > maxRequestID {
		return nil, "", status.Errorf(codes.InvalidArgument, "%s has %d bytes, at most %d are taken", requestIDKey, len(c.requestID), maxRequestID)
	}
	id = c.requestID
	versions, err := s.servables.index.Load().entries(req.GetModelSpec())
	if err != nil {
		return nil, id, err
	}
	for _, name := range req.GetOutputFilter() {
		if !slices.Contains(versions[0].outputs, name) {
			return nil, id, status.Errorf(codes.InvalidArgument, "output tensor alias not found in signature: %s Outputs expected to be in the set {%s}.", name, strings.Join(versions[0].outputs, ", "))
		}
	}
	rec := s.impressions.want(c, tracectx.Of(ctx), s.cfg.SampleRate)
	if rec != nil {
		id = rec.requestID
	}
	m, scores, err := s.answer(ctx, versions, req.GetInputs(), rec)
	if err != nil {
		return nil, id, err
	}
	s.metrics.rows.Add(float64(len(scores[0])))
	spec := tfserving.Spec(req.GetModelSpec().GetName(), m.version)
	spec.SignatureName = tfserving.DefaultSignature
	res = &apis.PredictResponse{ModelSpec: spec, Outputs: make(map[string]*tfserving.TensorProto, len(scores))}
	for i, name := range m.outputs {
		if only := req.GetOutputFilter(); len(only) == 0 || slices.Contains(only, name) {
			res.Outputs[name] = tfserving.NewFloat(scores[i])
		}
	}
	return res, id, nil
}

// predictionService is PredictionService on a Server.
type predictionService struct {
	tfserving.UnimplementedPrediction
	s *Server
}

func (p predictionService) Predict(ctx context.Context, req *apis.PredictRequest) (*apis.PredictResponse, error) {
	var c caller
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		c.requestID, c.traceparent = first(md[requestIDKey]), first(md[traceparentKey])
		c.impressions = asks(first(md[impressionKey]))
	}
	res, id, err := p.s.predict(ctx, c, req)
	if id != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs(requestIDKey, id)) // fails only once headers are sent
	}
	return res, err
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func (p predictionService) GetModelMetadata(_ context.Context, req *apis.GetModelMetadataRequest) (*apis.GetModelMetadataResponse, error) {
	if len(req.GetMetadataField()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "GetModelMetadataRequest must specify at least one metadata_field")
	}
	for _, f := range req.GetMetadataField() {
		if f != "signature_def" {
			return nil, status.Errorf(codes.InvalidArgument, "Metadata field %s is not supported", f)
		}
	}
	versions, err := p.s.servables.index.Load().entries(req.GetModelSpec())
	if err != nil {
		return nil, err
	}
	m := versions[0]
	info := func(name string, dtype types_go_proto.DataType, dims ...int64) *for_core_protos_go_proto.TensorInfo {
		shape := &tensor_shape_go_proto.TensorShapeProto{Dim: []*tensor_shape_go_proto.TensorShapeProto_Dim{{Size: -1}}}
		for _, d := range dims {
			shape.Dim = append(shape.Dim, &tensor_shape_go_proto.TensorShapeProto_Dim{Size: d})
		}
		return &for_core_protos_go_proto.TensorInfo{
			Encoding: &for_core_protos_go_proto.TensorInfo_Name{Name: name + ":0"}, Dtype: dtype, TensorShape: shape,
		}
	}
	def := &for_core_protos_go_proto.SignatureDef{
		Inputs:     map[string]*for_core_protos_go_proto.TensorInfo{},
		Outputs:    map[string]*for_core_protos_go_proto.TensorInfo{},
		MethodName: "tensorflow/serving/predict",
	}
	for _, in := range m.inputs {
		if in.Dim > 1 {
			def.Inputs[in.Name] = info(in.Name, in.Dtype, int64(in.Dim))
			continue
		}
		def.Inputs[in.Name] = info(in.Name, in.Dtype)
	}
	for _, name := range m.outputs {
		def.Outputs[name] = info(name, types_go_proto.DataType_DT_FLOAT)
	}
	body, err := anypb.New(&apis.SignatureDefMap{SignatureDef: map[string]*for_core_protos_go_proto.SignatureDef{tfserving.DefaultSignature: def}})
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &apis.GetModelMetadataResponse{
		ModelSpec: tfserving.Spec(req.GetModelSpec().GetName(), m.version),
		Metadata:  map[string]*anypb.Any{"signature_def": body},
	}, nil
}

// modelService is ModelService on a Server.
type modelService struct{ s *Server }

func (m modelService) GetModelStatus(_ context.Context, req *apis.GetModelStatusRequest) (*apis.GetModelStatusResponse, error) {
	return m.s.status(req.GetModelSpec())
}

func (s *Server) status(spec *apis.ModelSpec) (*apis.GetModelStatusResponse, error) {
	name, number := spec.GetName(), spec.GetVersion().GetValue()
	if name == "" {
		return nil, status.Error(codes.InvalidArgument, "Missing ModelSpec: name the model")
	}
	if _, ok := spec.GetVersionChoice().(*apis.ModelSpec_VersionLabel); ok {
		return nil, status.Errorf(codes.InvalidArgument, "Unrecognized servable version label: %s", spec.GetVersionLabel())
	}
	versions := s.servables.status(name, number)
	if len(versions) == 0 {
		if number > 0 {
			return nil, status.Errorf(codes.NotFound, "Could not find version %d of model %s", number, name)
		}
		return nil, status.Errorf(codes.NotFound, "Could not find any versions of model %s", name)
	}
	res := &apis.GetModelStatusResponse{}
	for _, v := range versions {
		st := &apis.StatusProto{}
		if v.err != nil {
			st.ErrorCode = for_core_protos_go_proto.Code(v.err.code)
			st.ErrorMessage = v.err.Error()
		}
		res.ModelVersionStatus = append(res.ModelVersionStatus, &apis.ModelVersionStatus{Version: v.number, State: v.state, Status: st})
	}
	return res, nil
}

// HandleReloadConfigRequest takes a whole new configuration, and answers once every
// model that is new in it is available or has failed. It is in force even if the caller
// stops waiting before that. Sent again, it tries failed versions once more.
func (m modelService) HandleReloadConfigRequest(ctx context.Context, req *apis.ReloadConfigRequest) (*apis.ReloadConfigResponse, error) {
	models, err := tfserving.Models(req.GetConfig())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	for i := range models {
		models[i].BasePath = m.s.abs(models[i].BasePath)
	}
	s := m.s
	s.env.Log.Info("model configuration received", "models", len(models))
	added := s.servables.configure(models)
	if err := s.servables.wait(ctx, s.stopping, added); err != nil {
		l := failed(err)
		return nil, status.Error(l.code, l.Error())
	}
	return &apis.ReloadConfigResponse{Status: &apis.StatusProto{}}, nil
}
