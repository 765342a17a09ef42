package modelserver

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/entry"

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
	impressions bool   // it asks for them
	entrypoint  string // GRPC or REST
	api         string // the method, by its name over gRPC
}

// asks reads the value of impressionKey.
func asks(v string) bool { return v != "" && v != "0" && !strings.EqualFold(v, "false") }

// answered is the scores of a batch by output, and the model whose they are.
type answered struct {
	model  *entry.Model
	scores [][]float32
	id     string // of the request, if it has one
}

// answer scores what the input gives, which is told of a version that will answer and may refuse it
// with a status.
func (s *Server) answer(ctx context.Context, c caller, spec *apis.ModelSpec, input func(*entry.Model) (entry.Input, error)) (a answered, err error) {
	began := time.Now()
	ctx, span := s.env.Tracer.Start(tracectx.With(ctx, c.traceparent), "modelserver.predict", trace.WithSpanKind(trace.SpanKindServer))
	defer func() {
		s.count(c, spec, time.Since(began), a, err)
		if span.IsRecording() {
			span.SetAttributes(attribute.String("model", spec.GetName()), attribute.String("request.id", a.id))
			if err != nil {
				span.SetStatus(otelcodes.Error, err.Error())
			}
		}
		span.End()
	}()
	if len(c.requestID) > maxRequestID {
		return a, status.Errorf(codes.InvalidArgument, "%s has %d bytes, at most %d are taken", requestIDKey, len(c.requestID), maxRequestID)
	}
	a.id = c.requestID
	versions, err := s.servables.Entries(spec)
	if err != nil {
		return a, err
	}
	in, err := input(versions[0])
	if err != nil {
		return a, err
	}
	rec := s.impressions.Want(c.requestID, c.impressions, tracectx.Of(ctx), s.cfg.SampleRate)
	if rec != nil {
		a.id = rec.RequestID
	}
	a.model, a.scores, err = s.canaries.answer(ctx, a.id, spec, input, rec, func() (*entry.Model, [][]float32, error) {
		return s.scorer.Answer(ctx, versions, in, rec)
	})
	return a, err
}

// count notes an answer, or why there is none.
func (s *Server) count(c caller, spec *apis.ModelSpec, took time.Duration, a answered, err error) {
	s.metrics.seconds.Observe(took.Seconds())
	rows := 0
	if err == nil {
		rows = len(a.scores[0])
		s.metrics.rows.Add(float64(rows))
	}
	s.counted(c, spec, took, rows, err)
}

// counted notes how a request for a model ended. Those that cannot be read end here too.
func (s *Server) counted(c caller, spec *apis.ModelSpec, took time.Duration, rows int, err error) {
	code := status.Code(err)
	s.metrics.predicts.WithLabelValues(code.String()).Inc()
	name := spec.GetName()
	if !s.servables.Configured(name) {
		name = "" // callers make up as many names as they like
	}
	s.monitoring.count(c, name, signature(spec.GetSignatureName(), code), code, took, rows)
}

// predict answers a Predict; id is set where the request has one, or the answer left impressions.
func (s *Server) predict(ctx context.Context, c caller, req *apis.PredictRequest) (res *apis.PredictResponse, id string, err error) {
	c.api = cmp.Or(c.api, "Predict")
	a, err := s.answer(ctx, c, req.GetModelSpec(), predictInput(req))
	if err != nil {
		return nil, a.id, err
	}
	spec := tfserving.Spec(req.GetModelSpec().GetName(), a.model.Version())
	spec.SignatureName = tfserving.DefaultSignature
	res = &apis.PredictResponse{ModelSpec: spec, Outputs: make(map[string]*tfserving.TensorProto, len(a.scores))}
	for i, name := range a.model.Outputs() {
		if only := req.GetOutputFilter(); len(only) == 0 || slices.Contains(only, name) {
			res.Outputs[name] = tfserving.NewFloat(a.scores[i])
		}
	}
	return res, a.id, nil
}

// predictInput is what a Predict asks a model about, if it has the outputs that are wanted.
func predictInput(req *apis.PredictRequest) func(*entry.Model) (entry.Input, error) {
	return func(m *entry.Model) (entry.Input, error) {
		for _, name := range req.GetOutputFilter() {
			if !slices.Contains(m.Outputs(), name) {
				return entry.Input{}, status.Errorf(codes.InvalidArgument, "output tensor alias not found in signature: %s Outputs expected to be in the set {%s}.", name, strings.Join(m.Outputs(), ", "))
			}
		}
		return entry.Input{Tensors: req.GetInputs()}, nil
	}
}
