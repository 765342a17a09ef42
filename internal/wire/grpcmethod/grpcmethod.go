// Package grpcmethod describes methods of gRPC services that are written by hand.
package grpcmethod

import (
	"context"

	"google.golang.org/grpc"
)

// Unary is the method `name` of a service whose servers are Ss.
func Unary[S, Req, Resp any](service, name string, method func(S, context.Context, *Req) (*Resp, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
		in := new(Req)
		if err := decode(in); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, in any) (any, error) {
			return method(srv.(S), ctx, in.(*Req))
		}
		if chain == nil {
			return call(ctx, in)
		}
		return chain(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + service + "/" + name}, call)
	}}
}
