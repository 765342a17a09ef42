// Package agentpb is the wire form of the original's agent service: messages generated from
// agent_service.proto, and the gRPC service written by hand.
package agentpb

import (
	"context"

	"google.golang.org/grpc"

	"github.com/monolith-go/monolith/internal/wire/grpcmethod"
)

// ServiceName is the service's full name; its methods are /<ServiceName>/GetReplicas,
// GetResource and HeartBeat.
const ServiceName = "monolith.serving.agent_service.AgentService"

// AgentServiceServer answers the original's agent service.
type AgentServiceServer interface {
	GetReplicas(context.Context, *GetReplicasRequest) (*GetReplicasResponse, error)
	GetResource(context.Context, *GetResourceRequest) (*GetResourceResponse, error)
	HeartBeat(context.Context, *HeartBeatRequest) (*HeartBeatResponse, error)
}

// RegisterAgentServiceServer makes s answer srv.
func RegisterAgentServiceServer(s grpc.ServiceRegistrar, srv AgentServiceServer) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: ServiceName,
		HandlerType: (*AgentServiceServer)(nil),
		Methods: []grpc.MethodDesc{
			grpcmethod.Unary(ServiceName, "GetReplicas", AgentServiceServer.GetReplicas),
			grpcmethod.Unary(ServiceName, "GetResource", AgentServiceServer.GetResource),
			grpcmethod.Unary(ServiceName, "HeartBeat", AgentServiceServer.HeartBeat),
		},
		Metadata: "internal/compat/agentpb/agent_service.proto",
	}, srv)
}

// AgentServiceClient asks the original's agent service.
type AgentServiceClient struct{ conn grpc.ClientConnInterface }

// NewAgentServiceClient asks over conn, which stays the caller's.
func NewAgentServiceClient(conn grpc.ClientConnInterface) *AgentServiceClient {
	return &AgentServiceClient{conn: conn}
}

// GetReplicas returns the addresses that serve one task of a model.
func (c *AgentServiceClient) GetReplicas(ctx context.Context, in *GetReplicasRequest, opts ...grpc.CallOption) (*GetReplicasResponse, error) {
	out := new(GetReplicasResponse)
	return out, c.conn.Invoke(ctx, "/"+ServiceName+"/GetReplicas", in, out, opts...)
}

// GetResource returns what is free.
func (c *AgentServiceClient) GetResource(ctx context.Context, in *GetResourceRequest, opts ...grpc.CallOption) (*GetResourceResponse, error) {
	out := new(GetResourceResponse)
	return out, c.conn.Invoke(ctx, "/"+ServiceName+"/GetResource", in, out, opts...)
}

// HeartBeat returns every address by task.
func (c *AgentServiceClient) HeartBeat(ctx context.Context, in *HeartBeatRequest, opts ...grpc.CallOption) (*HeartBeatResponse, error) {
	out := new(HeartBeatResponse)
	return out, c.conn.Invoke(ctx, "/"+ServiceName+"/HeartBeat", in, out, opts...)
}
