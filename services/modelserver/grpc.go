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
	if res, ok, err := p.s.predictRows(callerOf(ctx), req); ok {
		return res, err
	}
	res, id, err := p.s.predict(ctx, callerOf(ctx), req)
	named(ctx, id)
	return res, err
}

func (p predictionService) Classify(ctx context.Context, req *apis.ClassificationRequest) (*apis.ClassificationResponse, error) {
	r, id, err := p.s.inferOne(ctx, callerOf(ctx), req.GetModelSpec(), tfserving.MethodClassify, func() ([][]byte, error) { return examplesOf(req.GetInput()) })
	named(ctx, id)
	if err != nil {
		return nil, err
	}
	return &apis.ClassificationResponse{ModelSpec: r.GetModelSpec(), Result: r.GetClassificationResult()}, nil
}

func (p predictionService) Regress(ctx context.Context, req *apis.RegressionRequest) (*apis.RegressionResponse, error) {
	r, id, err := p.s.inferOne(ctx, callerOf(ctx), req.GetModelSpec(), tfserving.MethodRegress, func() ([][]byte, error) { return examplesOf(req.GetInput()) })
	named(ctx, id)
	if err != nil {
		return nil, err
	}
	return &apis.RegressionResponse{ModelSpec: r.GetModelSpec(), Result: r.GetRegressionResult()}, nil
}

func (p predictionService) MultiInference(ctx context.Context, req *apis.MultiInferenceRequest) (*apis.MultiInferenceResponse, error) {
	c := callerOf(ctx)
	c.api = "MultiInference"
	results, id, err := p.s.infer(ctx, c, req.GetTasks(), func() ([][]byte, error) { return examplesOf(req.GetInput()) })
	named(ctx, id)
	if err != nil {
		return nil, err
	}
	return &apis.MultiInferenceResponse{Results: results}, nil
}

// callerOf reads what the metadata of a call say.
func callerOf(ctx context.Context) (c caller) {
	c.entrypoint = "GRPC"
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
	name := spec.GetName()
	number, err := s.servables.Version(spec)
	if err != nil {
		return nil, err
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
// stops waiting before that; its labels only once it is answered, unless they may wait for
// their versions. Sent again, it tries failed versions once more.
func (m modelService) HandleReloadConfigRequest(ctx context.Context, req *apis.ReloadConfigRequest) (*apis.ReloadConfigResponse, error) {
	models, err := tfserving.Models(req.GetConfig())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s := m.s
	s.env.Log.Info("model configuration received", "models", len(models))
	added := s.configure(models)
	pending := s.cfg.AllowPendingLabels
	if pending {
		err = s.servables.Label(labelsOf(models), pending)
	}
	if err == nil {
		err = s.servables.Wait(ctx, s.stopping, added)
	}
	if err == nil && !pending {
		err = s.servables.Label(labelsOf(models), pending)
	}
	if err != nil {
		return nil, err
	}
	return &apis.ReloadConfigResponse{Status: &apis.StatusProto{}}, nil
}

// configure takes a whole new configuration but for its labels, and returns the names that are new.
func (s *Server) configure(models []tfserving.Model) (added []string) {
	for i := range models {
		models[i].BasePath = s.abs(models[i].BasePath)
	}
	return s.servables.Configure(models)
}

func labelsOf(models []tfserving.Model) map[string]map[string]int64 {
	all := make(map[string]map[string]int64, len(models))
	for _, m := range models {
		all[m.Name] = m.Labels
	}
	return all
}
