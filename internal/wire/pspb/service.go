// Package pspb is the gRPC form of a parameter-server shard: messages generated from
// ps.proto, and the service written by hand.
package pspb

import (
	"context"

	"google.golang.org/grpc"

	"github.com/monolith-go/monolith/internal/wire/grpcmethod"
)

// ServiceName is the service's full name; its methods are /<ServiceName>/Lookup and so on.
const ServiceName = "monolith.ps.v1.ParameterServer"

// ParameterServerServer answers for one shard.
type ParameterServerServer interface {
	Lookup(context.Context, *LookupRequest) (*LookupResponse, error)
	Apply(context.Context, *ApplyRequest) (*ApplyResponse, error)
	Assign(context.Context, *AssignRequest) (*AssignResponse, error)
	Dense(context.Context, *DenseRequest) (*DenseResponse, error)
	Offsets(context.Context, *OffsetsRequest) (*OffsetsResponse, error)
	Barrier(context.Context, *BarrierRequest) (*BarrierResponse, error)
	Stats(context.Context, *StatsRequest) (*StatsResponse, error)
}

// RegisterParameterServerServer makes s answer srv.
func RegisterParameterServerServer(s grpc.ServiceRegistrar, srv ParameterServerServer) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: ServiceName,
		HandlerType: (*ParameterServerServer)(nil),
		Methods: []grpc.MethodDesc{
			grpcmethod.Unary(ServiceName, "Lookup", ParameterServerServer.Lookup),
			grpcmethod.Unary(ServiceName, "Apply", ParameterServerServer.Apply),
			grpcmethod.Unary(ServiceName, "Assign", ParameterServerServer.Assign),
			grpcmethod.Unary(ServiceName, "Dense", ParameterServerServer.Dense),
			grpcmethod.Unary(ServiceName, "Offsets", ParameterServerServer.Offsets),
			grpcmethod.Unary(ServiceName, "Barrier", ParameterServerServer.Barrier),
			grpcmethod.Unary(ServiceName, "Stats", ParameterServerServer.Stats),
		},
		Metadata: "internal/wire/pspb/ps.proto",
	}, srv)
}

// Client asks one shard over a connection that stays the caller's.
type Client struct{ Conn grpc.ClientConnInterface }

func invoke[Resp any](ctx context.Context, c *Client, method string, in any) (*Resp, error) {
	out := new(Resp)
	if err := c.Conn.Invoke(ctx, "/"+ServiceName+"/"+method, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Lookup reads rows; a missing one is zeros.
func (c *Client) Lookup(ctx context.Context, in *LookupRequest) (*LookupResponse, error) {
	return invoke[LookupResponse](ctx, c, "Lookup", in)
}

// Apply teaches a range of a partition, once.
func (c *Client) Apply(ctx context.Context, in *ApplyRequest) (*ApplyResponse, error) {
	return invoke[ApplyResponse](ctx, c, "Apply", in)
}

// Assign sets rows past the stream.
func (c *Client) Assign(ctx context.Context, in *AssignRequest) (*AssignResponse, error) {
	return invoke[AssignResponse](ctx, c, "Assign", in)
}

// Dense reads dense variables.
func (c *Client) Dense(ctx context.Context, in *DenseRequest) (*DenseResponse, error) {
	return invoke[DenseResponse](ctx, c, "Dense", in)
}

// Offsets says how far the shard has learnt.
func (c *Client) Offsets(ctx context.Context, in *OffsetsRequest) (*OffsetsResponse, error) {
	return invoke[OffsetsResponse](ctx, c, "Offsets", in)
}

// Barrier waits for the other workers.
func (c *Client) Barrier(ctx context.Context, in *BarrierRequest) (*BarrierResponse, error) {
	return invoke[BarrierResponse](ctx, c, "Barrier", in)
}

// Stats is the shard in figures.
func (c *Client) Stats(ctx context.Context, in *StatsRequest) (*StatsResponse, error) {
	return invoke[StatsResponse](ctx, c, "Stats", in)
}
