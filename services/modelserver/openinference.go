package modelserver

import (
	"io"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/openinference"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// serveOpenInference answers the open inference protocol, version 2: the same models, by the same code.
func (s *Server) serveOpenInference(w http.ResponseWriter, r *http.Request, p openinference.Path) {
	w.Header().Set("Content-Type", "application/json")
	body, err := s.openInference(w, r, p)
	code := http.StatusOK
	if err != nil {
		st := status.Convert(err)
		code, body = tfserving.HTTPStatus(st.Code()), openinference.EncodeError(st.Message())
	}
	write(w, r, code, body)
}

func (s *Server) openInference(w http.ResponseWriter, r *http.Request, p openinference.Path) (body []byte, err error) {
	infer := p.Verb == "infer"
	switch {
	case infer && r.Method != http.MethodPost, !infer && r.Method != http.MethodGet:
		return nil, status.Errorf(codes.InvalidArgument, "%s %s: infer is a POST, all else is a GET", r.Method, r.URL.Path)
	case p.Model == "" && p.Verb == "":
		return openinference.EncodeServer(build()), nil
	case p.Model == "" && p.Verb == "live":
		return []byte(`{"live":true}`), nil
	case p.Model == "":
		if _, err := s.unready(); err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		return []byte(`{"ready":true}`), nil
	case infer:
		return s.openInfer(w, r, p)
	}
	versions, err := s.servables.Entries(tfserving.Spec(p.Model, p.Version))
	if err != nil {
		return nil, err
	}
	if p.Verb == "ready" {
		return []byte(`{"ready":true}`), nil
	}
	var names []string
	for _, m := range versions {
		if v := strconv.FormatInt(m.Version(), 10); !slices.Contains(names, v) {
			names = append(names, v)
		}
	}
	return openinference.EncodeModel(p.Model, names, versions[0].Inputs(), versions[0].Outputs()), nil
}

func (s *Server) openInfer(w http.ResponseWriter, r *http.Request, p openinference.Path) ([]byte, error) {
	c := callerOfHTTP(r)
	spec := tfserving.Spec(p.Model, p.Version)
	var q openinference.Request
	_, err := s.servables.Entries(spec)
	if err == nil {
		err = s.restDecode(w, r, func(body io.Reader) (err error) {
			q, err = openinference.Decode(body, r.Header.Get(openinference.BinaryHeader))
			return err
		})
	}
	if err != nil {
		s.metrics.predicts.WithLabelValues(status.Code(err).String()).Inc() // those that are decoded count further on
		return nil, err
	}
	res, id, err := s.predict(r.Context(), c, &apis.PredictRequest{ModelSpec: spec, Inputs: q.Inputs, OutputFilter: q.Outputs})
	if id != "" {
		w.Header().Set(requestIDKey, id)
	}
	if err != nil {
		return nil, err
	}
	names := q.Outputs // in the order in which they were asked for
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(res.GetOutputs()))
	}
	outputs := make([]openinference.Output, len(names))
	for i, name := range names {
		outputs[i] = openinference.Output{Name: name, Values: res.GetOutputs()[name].GetFloatVal(), Binary: q.Binary(name)}
	}
	body, header, err := openinference.EncodeAnswer(p.Model, res.GetModelSpec().GetVersion().GetValue(), q.ID, outputs)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "a score is no number, which JSON cannot hold: %v", err)
	}
	if header < len(body) {
		w.Header().Set(openinference.BinaryHeader, strconv.Itoa(header))
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	return body, nil
}

// build is the version of this program.
func build() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}
