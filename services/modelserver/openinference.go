package modelserver

import (
	"context"
	"io"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/openinference"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// serveOpenInference answers the open inference protocol, version 2, over HTTP: the same models, by the same code.
func (s *Server) serveOpenInference(w http.ResponseWriter, r *http.Request, p openinference.Path) {
	w.Header().Set("Content-Type", "application/json")
	body, err := s.openInference(w, r, p)
	code := http.StatusOK
	if err != nil {
		code, body = refusedWith(w, err), openinference.EncodeError(status.Convert(err).Message())
	}
	write(w, r, code, body)
}

func (s *Server) openInference(w http.ResponseWriter, r *http.Request, p openinference.Path) (body []byte, err error) {
	infer := p.Verb == "infer"
	switch {
	case infer && r.Method != http.MethodPost, !infer && r.Method != http.MethodGet:
		return nil, status.Errorf(codes.InvalidArgument, "%s %s: infer is a POST, all else is a GET", r.Method, r.URL.Path)
	case p.Model == "" && p.Verb == "":
		return openinference.NewServer(build()).Encode(), nil
	case p.Model == "" && p.Verb == "live":
		return []byte(`{"live":true}`), nil
	case p.Model == "":
		if _, err := s.unready(); err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		return []byte(`{"ready":true}`), nil
	case infer:
		return s.openInferHTTP(w, r, p)
	}
	m, err := s.openModel(p.Model, p.Version)
	switch {
	case err != nil:
		return nil, err
	case p.Verb == "ready":
		return []byte(`{"ready":true}`), nil
	}
	return m.Encode(), nil
}

// openModel describes a model that answers; the error is a status.
func (s *Server) openModel(name string, version int64) (m openinference.Model, err error) {
	versions, err := s.servables.Entries(tfserving.Spec(name, version))
	if err != nil {
		return m, err
	}
	var names []string
	for _, m := range versions {
		if v := strconv.FormatInt(m.Version(), 10); !slices.Contains(names, v) {
			names = append(names, v)
		}
	}
	return openinference.NewModel(name, names, versions[0].Inputs(), versions[0].Outputs()), nil
}

// openInfer answers what decode reads, once it is sure that the model does; id is that of the request,
// for its impressions.
func (s *Server) openInfer(ctx context.Context, c caller, name string, version int64, decode func() (openinference.Request, error)) (a openinference.Answer, id string, err error) {
	began, spec := time.Now(), tfserving.Spec(name, version)
	c.api = "ModelInfer"
	leave, err := s.admit(ctx, c, name)
	if err != nil {
		return a, c.requestID, err
	}
	defer func() { leave(err == nil) }()
	var q openinference.Request
	if _, err = s.servables.Entries(spec); err == nil {
		q, err = decode()
	}
	if err != nil {
		s.counted(c, spec, time.Since(began), 0, err) // those that are decoded count further on
		return a, c.requestID, err
	}
	res, id, err := s.predict(ctx, c, &apis.PredictRequest{ModelSpec: spec, Inputs: q.Inputs, OutputFilter: q.Outputs})
	if err != nil {
		return a, id, err
	}
	names := q.Outputs // in the order in which they were asked for
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(res.GetOutputs()))
	}
	a = openinference.Answer{Model: name, Version: res.GetModelSpec().GetVersion().GetValue(), ID: q.ID}
	for _, name := range names {
		a.Outputs = append(a.Outputs, openinference.Output{Name: name, Values: res.GetOutputs()[name].GetFloatVal(), Binary: q.Binary(name)})
	}
	return a, id, nil
}

func (s *Server) openInferHTTP(w http.ResponseWriter, r *http.Request, p openinference.Path) ([]byte, error) {
	a, id, err := s.openInfer(r.Context(), callerOfHTTP(r), p.Model, p.Version, func() (q openinference.Request, err error) {
		err = s.restDecode(w, r, func(body io.Reader) (err error) {
			q, err = openinference.Decode(body, r.Header.Get(openinference.BinaryHeader))
			return err
		})
		return q, err
	})
	if id != "" {
		w.Header().Set(requestIDKey, id)
	}
	if err != nil {
		return nil, err
	}
	body, header, err := openinference.EncodeAnswer(a)
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
