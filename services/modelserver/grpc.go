package modelserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// predictionService is PredictionService on a Server.
type predictionService struct {
	tfserving.UnimplementedPrediction
	s *Server
}

func (p predictionService) Predict(ctx context.Context, req *apis.PredictRequest) (*apis.PredictResponse, error) {
	res, id, err := p.s.predict(ctx, callerOf(ctx), req)
	named(ctx, id)
	return res, err
}

func (p predictionService) Classify(ctx context.Context, req *apis.ClassificationRequest) (*apis.ClassificationResponse, error) {
	r, id, err := p.s.inferOne(ctx, callerOf(ctx), req.GetModelSpec(), tfserving.MethodClassify, req.GetInput())
	named(ctx, id)
	if err != nil {
		return nil, err
	}
	return &apis.ClassificationResponse{ModelSpec: r.GetModelSpec(), Result: r.GetClassificationResult()}, nil
}

func (p predictionService) Regress(ctx context.Context, req *apis.RegressionRequest) (*apis.RegressionResponse, error) {
	r, id, err := p.s.inferOne(ctx, callerOf(ctx), req.GetModelSpec(), tfserving.MethodRegress, req.GetInput())
	named(ctx, id)
	if err != nil {
		return nil, err
	}
	return &apis.RegressionResponse{ModelSpec: r.GetModelSpec(), Result: r.GetRegressionResult()}, nil
}

func (p predictionService) MultiInference(ctx context.Context, req *apis.MultiInferenceRequest) (*apis.MultiInferenceResponse, error) {
	results, id, err := p.s.infer(ctx, callerOf(ctx), req.GetTasks(), func() ([][]byte, error) { return examplesOf(req.GetInput()) })
	named(ctx, id)
	if err != nil {
		return nil, err
	}
	return &apis.MultiInferenceResponse{Results: results}, nil
}

// callerOf reads what the metadata of a call say.
func callerOf(ctx context.Context) (c caller) {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		c.requestID, c.traceparent = first(md[requestIDKey]), first(md[traceparentKey])
		c.impressions = asks(first(md[impressionKey]))
	}
	return c
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// named tells the caller the id of the request, if it has one.
func named(ctx context.Context, id string) {
	if id != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs(requestIDKey, id)) // fails only once headers are sent
	}
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
	versions := s.servables.Status(name, number)
	if len(versions) == 0 {
		if number > 0 {
			return nil, status.Errorf(codes.NotFound, "Could not find version %d of model %s", number, name)
		}
		return nil, status.Errorf(codes.NotFound, "Could not find any versions of model %s", name)
	}
	res := &apis.GetModelStatusResponse{}
	for _, v := range versions {
		st := &apis.StatusProto{}
		if v.Err != nil {
			st.ErrorCode = for_core_protos_go_proto.Code(v.Code)
			st.ErrorMessage = v.Err.Error()
		}
		res.ModelVersionStatus = append(res.ModelVersionStatus, &apis.ModelVersionStatus{Version: v.Version, State: v.State, Status: st})
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
	added := s.servables.Configure(models)
	if err := s.servables.Wait(ctx, s.stopping, added); err != nil {
		return nil, err
	}
	return &apis.ReloadConfigResponse{Status: &apis.StatusProto{}}, nil
}
