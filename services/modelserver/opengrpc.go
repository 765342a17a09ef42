package modelserver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/inferencepb"
	"github.com/monolith-go/monolith/internal/wire/openinference"
)

// openService is the open inference protocol over gRPC on a Server.
type openService struct {
	inferencepb.UnimplementedGRPCInferenceServiceServer
	s *Server
}

func (o openService) ServerLive(context.Context, *inferencepb.ServerLiveRequest) (*inferencepb.ServerLiveResponse, error) {
	return &inferencepb.ServerLiveResponse{Live: true}, nil
}

func (o openService) ServerReady(context.Context, *inferencepb.ServerReadyRequest) (*inferencepb.ServerReadyResponse, error) {
	_, err := o.s.unready()
	return &inferencepb.ServerReadyResponse{Ready: err == nil}, nil
}

// ModelReady says no of a model that is not there, as of one that is not ready.
func (o openService) ModelReady(_ context.Context, req *inferencepb.ModelReadyRequest) (*inferencepb.ModelReadyResponse, error) {
	_, err := o.model(req.GetName(), req.GetVersion())
	switch status.Code(err) {
	case codes.OK, codes.NotFound, codes.Unavailable:
		return &inferencepb.ModelReadyResponse{Ready: err == nil}, nil
	}
	return nil, err
}

func (o openService) ServerMetadata(context.Context, *inferencepb.ServerMetadataRequest) (*inferencepb.ServerMetadataResponse, error) {
	return openinference.NewServer(build()).Proto(), nil
}

func (o openService) ModelMetadata(_ context.Context, req *inferencepb.ModelMetadataRequest) (*inferencepb.ModelMetadataResponse, error) {
	m, err := o.model(req.GetName(), req.GetVersion())
	if err != nil {
		return nil, err
	}
	return m.Proto(), nil
}

func (o openService) model(name, version string) (m openinference.Model, err error) {
	v, err := openinference.ParseVersion(version)
	if err != nil {
		return m, status.Error(codes.InvalidArgument, err.Error())
	}
	return o.s.openModel(name, v)
}

func (o openService) ModelInfer(ctx context.Context, req *inferencepb.ModelInferRequest) (*inferencepb.ModelInferResponse, error) {
	version, wrong := openinference.ParseVersion(req.GetModelVersion())
	a, id, err := o.s.openInfer(ctx, callerOf(ctx), req.GetModelName(), version, func() (q openinference.Request, err error) {
		if err = wrong; err == nil {
			q, err = openinference.FromProto(req)
		}
		if err != nil {
			err = status.Error(codes.InvalidArgument, err.Error())
		}
		return q, err
	})
	named(ctx, id)
	if err != nil {
		return nil, err
	}
	return a.Proto(), nil
}
