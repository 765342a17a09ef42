package modelserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/openinference"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/admission"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// ServeHTTP is TensorFlow Serving's REST API, on the same code as the gRPC one, and the open inference
// protocol below /v2.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.cors(w, r) {
		return
	}
	if s.monitoring.serves(r) {
		s.monitoring.handler.ServeHTTP(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.restTimeout())
	defer cancel()
	r = r.WithContext(ctx)
	if p, ok := openinference.ParsePath(r.URL.EscapedPath()); ok {
		s.serveOpenInference(w, r, p)
		return
	}
	body, id, err := s.rest(w, r)
	w.Header().Set("Content-Type", "application/json")
	if id != "" {
		w.Header().Set(requestIDKey, id)
	}
	code := http.StatusOK
	if err != nil {
		code = refusedWith(w, err)
		body = tfserving.EncodeError(status.Convert(err).Message())
	}
	write(w, r, code, body)
}

// refusedWith is the HTTP status of an error. Overload is 503, which makes a proxy ask another replica, and says when
// to try again.
func refusedWith(w http.ResponseWriter, err error) int {
	if in, ok := admission.RetryIn(err); ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(in.Seconds()))))
		return http.StatusServiceUnavailable
	}
	return tfserving.HTTPStatus(status.Code(err))
}

func (s *Server) rest(w http.ResponseWriter, r *http.Request) (body []byte, id string, err error) {
	if r.Method == http.MethodGet && r.URL.Path == readyPath {
		return s.ready200()
	}
	malformed := status.Errorf(codes.InvalidArgument, "Malformed request: %s %s", r.Method, r.URL.Path)
	q, err := tfserving.ParsePath(r.URL.Path)
	if err != nil {
		return nil, "", malformed
	}
	spec := tfserving.Spec(q.Model, q.Version)
	if q.Label != "" {
		spec.VersionChoice = &apis.ModelSpec_VersionLabel{VersionLabel: q.Label}
	}
	switch {
	case r.Method == http.MethodGet && q.Metadata:
		res, err := predictionService{s: s}.GetModelMetadata(r.Context(), &apis.GetModelMetadataRequest{ModelSpec: spec, MetadataField: []string{"signature_def"}})
		if err != nil {
			return nil, "", err
		}
		if body, err = tfserving.EncodeMetadata(res); err != nil {
			return nil, "", status.Error(codes.Internal, err.Error())
		}
		return body, "", nil
	case r.Method == http.MethodGet && q.Verb == "":
		res, err := s.status(spec)
		if err != nil {
			return nil, "", err
		}
		return tfserving.EncodeStatus(res), "", nil
	case r.Method == http.MethodPost && q.Verb == "predict":
		return s.restPredict(w, r, spec)
	case r.Method == http.MethodPost && q.Verb == "classify":
		return s.restInfer(w, r, spec, tfserving.MethodClassify)
	case r.Method == http.MethodPost && q.Verb == "regress":
		return s.restInfer(w, r, spec, tfserving.MethodRegress)
	}
	return nil, "", malformed
}

func (s *Server) restPredict(w http.ResponseWriter, r *http.Request, spec *apis.ModelSpec) (body []byte, id string, err error) {
	began, c := time.Now(), callerOfHTTP(r)
	c.api = "Predict"
	leave, err := s.admit(r.Context(), c, spec.GetName())
	if err != nil {
		return nil, c.requestID, err
	}
	defer func() { leave(err == nil) }()
	versions, err := s.servables.Entries(spec)
	var p tfserving.PredictJSON
	if err == nil {
		err = s.restDecode(w, r, func(body io.Reader) (err error) {
			p, err = tfserving.DecodePredict(body, versions[0].RESTInputs(), s.cfg.MaxBatch)
			return err
		})
	}
	if err != nil {
		s.counted(c, spec, time.Since(began), 0, err) // those that are decoded count further on
		return nil, c.requestID, err
	}
	spec.SignatureName = p.Signature
	res, id, err := s.predict(r.Context(), c, &apis.PredictRequest{ModelSpec: spec, Inputs: p.Inputs})
	if err != nil {
		return nil, id, err
	}
	body, err = tfserving.EncodePredict(p.Columnar, res.GetOutputs())
	if err != nil {
		return nil, id, status.Error(codes.Internal, err.Error())
	}
	return body, id, nil
}

// restInfer answers :classify and :regress.
func (s *Server) restInfer(w http.ResponseWriter, r *http.Request, spec *apis.ModelSpec, method string) (body []byte, id string, err error) {
	began, c := time.Now(), callerOfHTTP(r)
	c.api = apiOf(method)
	leave, err := s.admit(r.Context(), c, spec.GetName())
	if err != nil {
		return nil, c.requestID, err
	}
	defer func() { leave(err == nil) }()
	var p tfserving.ExamplesJSON
	_, err = s.servables.Entries(spec)
	if err == nil {
		err = s.restDecode(w, r, func(body io.Reader) (err error) {
			p, err = tfserving.DecodeExamples(body, s.cfg.MaxBatch)
			return err
		})
	}
	if err != nil {
		s.counted(c, spec, time.Since(began), 0, err) // those that are decoded count further on
		return nil, c.requestID, err
	}
	spec.SignatureName = p.Signature
	result, id, err := s.inferOne(r.Context(), c, spec, method, func() ([][]byte, error) { return tfserving.WithContext(p.Context, p.Examples) })
	if err != nil {
		return nil, id, err
	}
	if body, err = tfserving.EncodeResult(result); err != nil {
		return nil, id, status.Error(codes.Internal, err.Error())
	}
	return body, id, nil
}

// callerOfHTTP reads what the headers of a request say.
func callerOfHTTP(r *http.Request) caller {
	return caller{entrypoint: "REST", requestID: r.Header.Get(requestIDKey), traceparent: r.Header.Get(traceparentKey), impressions: asks(r.Header.Get(impressionKey))}
}

// restDecode lets decode read the body as it arrives, within the bounds of one request and of all.
func (s *Server) restDecode(w http.ResponseWriter, r *http.Request, decode func(io.Reader) error) error {
	body, err := plain(w, r)
	if err != nil {
		return err
	}
	in := &metered{r: body, all: s.bodies}
	defer in.done()
	err = decode(in)
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		err = status.Errorf(codes.InvalidArgument, "the body has more than %d bytes; send a smaller batch", big.Limit)
	case errors.Is(err, errBodies):
		err = status.Error(codes.ResourceExhausted, errBodies.Error())
	case err != nil:
		err = status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}

// serveHTTP answers on the listener until ctx ends, then drains.
func (s *Server) serveHTTP(ctx context.Context, srv *http.Server, serve func() error) error {
	failed := make(chan error, 1)
	go func() { failed <- serve() }()
	select {
	case err := <-failed:
		return fmt.Errorf("modelserver: http: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		_ = srv.Close()
	}
	<-failed
	return nil
}
