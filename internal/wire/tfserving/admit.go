package tfserving

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Admitter is a [PredictionServer] that may refuse a request for a model before it is decoded. leave is called
// once the request is answered.
type Admitter interface {
	Admit(ctx context.Context, model string) (leave func(), err error)
}

// Where requests have the name of their model: the fields to go through, from the outside.
var (
	nameOfSpec = []protowire.Number{1, 1}    // model_spec.name
	nameOfTask = []protowire.Number{1, 1, 1} // tasks[0].model_spec.name
)

// peek is the text or message behind a path of fields, each the first of its number, in a message that has not
// been decoded; empty where there is none, or the message is malformed.
func peek(message []byte, path []protowire.Number) []byte {
	for _, field := range path {
		found := false
		for !found {
			number, kind, n := protowire.ConsumeTag(message)
			if n < 0 {
				return nil
			}
			message = message[n:]
			if found = number == field && kind == protowire.BytesType; found {
				break
			}
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return nil
			}
			message = message[n:]
		}
		inner, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return nil
		}
		message = inner
	}
	return message
}

// guarded is a request that is decoded only if its model lets it in.
type guarded struct {
	into    proto.Message
	name    []protowire.Number // where its model stands
	admit   func(model string) error
	refused error
}

// codec decodes guarded requests, and all others as gRPC does.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	g, ok := v.(*guarded)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	if g.refused = g.admit(string(peek(b.ReadOnlyData(), g.name))); g.refused != nil {
		return nil
	}
	return proto.Unmarshal(b.ReadOnlyData(), g.into)
}

// Codec is the codec of a gRPC server on which an [Admitter] is registered; any other cannot decode its requests.
func Codec() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(grpcproto.Name)})
}
