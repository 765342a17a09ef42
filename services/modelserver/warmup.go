package modelserver

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/entry"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// warmUp answers a recorded request as often as is wanted, as if a caller had sent it to m.
func (s *Server) warmUp(ctx context.Context, m *entry.Model, folder string, recorded *apis.PredictionLog) error {
	for range s.cfg.WarmUpIterations {
		if err := s.warmUpOnce(ctx, m, folder, recorded); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) warmUpOnce(ctx context.Context, m *entry.Model, folder string, recorded *apis.PredictionLog) (err error) {
	began := time.Now()
	defer func() { s.monitoring.warmed(folder, status.Code(err), time.Since(began)) }()
	input, err := inputOf(recorded)
	if err != nil {
		return err
	}
	in, err := input(m)
	if err != nil {
		return err
	}
	_, _, err = s.scorer.Answer(ctx, []*entry.Model{m}, in, nil)
	return err
}

// inputOf is what a recorded request asks about.
func inputOf(recorded *apis.PredictionLog) (func(*entry.Model) (entry.Input, error), error) {
	switch l := recorded.GetLogType().(type) {
	case *apis.PredictionLog_PredictLog:
		return predictInput(l.PredictLog.GetRequest()), nil
	case *apis.PredictionLog_ClassifyLog:
		req := l.ClassifyLog.GetRequest()
		return inferInput([]*apis.InferenceTask{{ModelSpec: req.GetModelSpec(), MethodName: tfserving.MethodClassify}}, req.GetInput()), nil
	case *apis.PredictionLog_RegressLog:
		req := l.RegressLog.GetRequest()
		return inferInput([]*apis.InferenceTask{{ModelSpec: req.GetModelSpec(), MethodName: tfserving.MethodRegress}}, req.GetInput()), nil
	case *apis.PredictionLog_MultiInferenceLog:
		req := l.MultiInferenceLog.GetRequest()
		return inferInput(req.GetTasks(), req.GetInput()), nil
	}
	return nil, status.Errorf(codes.Unimplemented, "a %T is not replayed; record Predict, Classify, Regress or MultiInference", recorded.GetLogType())
}

func inferInput(tasks []*apis.InferenceTask, in *apis.Input) func(*entry.Model) (entry.Input, error) {
	return taskInput(tasks, func() ([][]byte, error) { return examplesOf(in) })
}
