package modelserver

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// readyPath is where REST says whether all models answer.
const readyPath = "/readyz"

// healthService is grpc.health.v1: a service for each model, by its name, and "" for all of them.
type healthService struct {
	grpc_health_v1.UnimplementedHealthServer
	s        *Server
	watchers *semaphore.Weighted // so that they leave calls to others
}

// maxWatchers is how many may watch at once.
const maxWatchers = 256

// unready is why not all models answer; nil: they do. A server of which nobody has asked for a
// model answers nothing, and is not ready.
func (s *Server) unready() (changed <-chan struct{}, err error) {
	_, _, changed = s.servables.Serving("")
	select {
	case <-s.stopping:
		return changed, errors.New("the server is stopping")
	default:
	}
	select {
	case <-s.ready:
	default:
		return changed, errors.New("the views have not caught up with the log yet")
	}
	models := s.servables.Models()
	for _, name := range models {
		if _, answers, _ := s.servables.Serving(name); !answers {
			return changed, fmt.Errorf("model %s does not answer; see its status", name)
		}
	}
	if len(models) == 0 {
		return changed, errors.New("no model is configured yet; load one")
	}
	return changed, nil
}

// ready200 answers readyPath.
func (s *Server) ready200() (body []byte, id string, err error) {
	if _, err := s.unready(); err != nil {
		return nil, "", status.Error(codes.Unavailable, err.Error())
	}
	return []byte("{}\n"), "", nil
}

// of says how a service is, and what is closed when it may be another way.
func (h healthService) of(service string) (st grpc_health_v1.HealthCheckResponse_ServingStatus, changed <-chan struct{}) {
	if service == "" {
		changed, err := h.s.unready()
		if err != nil {
			return grpc_health_v1.HealthCheckResponse_NOT_SERVING, changed
		}
		return grpc_health_v1.HealthCheckResponse_SERVING, changed
	}
	known, answers, changed := h.s.servables.Serving(service)
	select {
	case <-h.s.stopping:
		answers = false
	default:
	}
	switch {
	case answers:
		return grpc_health_v1.HealthCheckResponse_SERVING, changed
	case known:
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING, changed
	}
	return grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN, changed
}

func (h healthService) Check(_ context.Context, req *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	st, _ := h.of(req.GetService())
	if st == grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Errorf(codes.NotFound, "model %s is not configured here; name a model, or none for all of them", req.GetService())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: st}, nil
}

// List says how all models are.
func (h healthService) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	res := &grpc_health_v1.HealthListResponse{Statuses: map[string]*grpc_health_v1.HealthCheckResponse{}}
	for _, service := range append(h.s.servables.Models(), "") {
		st, _ := h.of(service)
		res.Statuses[service] = &grpc_health_v1.HealthCheckResponse{Status: st}
	}
	return res, nil
}

// Watch says how a service is, and again at each change, until the caller goes or the server stops.
func (h healthService) Watch(req *grpc_health_v1.HealthCheckRequest, to grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	if !h.watchers.TryAcquire(1) {
		return status.Errorf(codes.ResourceExhausted, "%d callers watch already; ask by Check instead", maxWatchers)
	}
	defer h.watchers.Release(1)
	last := grpc_health_v1.HealthCheckResponse_ServingStatus(-1)
	ready := h.s.ready
	for {
		st, changed := h.of(req.GetService())
		if st != last {
			if err := to.Send(&grpc_health_v1.HealthCheckResponse{Status: st}); err != nil {
				return err
			}
			last = st
		}
		select {
		case <-changed:
		case <-ready:
			ready = nil // it is closed once
		case <-to.Context().Done():
			return status.FromContextError(to.Context().Err()).Err()
		case <-h.s.stopping:
			if last != grpc_health_v1.HealthCheckResponse_NOT_SERVING { // it may have been told while it waited
				_ = to.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING})
			}
			return status.Error(codes.Unavailable, "the server is stopping; watch another one")
		}
	}
}
