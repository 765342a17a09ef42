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
// once the request is answered, with whether it was well.
type Admitter interface {
	Admit(ctx context.Context, model string) (leave func(served bool), err error)
}

// hop is a field on the way to the name of a request's model.
type hop struct {
	field    protowire.Number
	repeated bool // its first entry is meant; what occurs twice of any other field is merged
}

// Where requests have the name of their model, from the outside.
var (
	nameOfSpec = []hop{{field: 1}, {field: 1}}                             // model_spec.name
	nameOfTask = []hop{{field: 1, repeated: true}, {field: 1}, {field: 1}} // tasks[0].model_spec.name
)

// peek finds the text that decoding a message finds behind a path of fields; false where there is none, and where
// decoding fails.
func peek(message []byte, path []hop) (text []byte, found bool) {
	if len(path) == 0 {
		return message, true
	}
	first := true
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, false
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return nil, false
		}
		value := message[n : n+size]
		message = message[n+size:]
		if number != path[0].field || kind != protowire.BytesType || path[0].repeated && !first {
			continue
		}
		first = false
		inner, _ := protowire.ConsumeBytes(value)
		if last, ok := peek(inner, path[1:]); ok {
			text, found = last, true
		}
	}
	return text, found
}

// guarded is a request that is decoded only if its model lets it in.
type guarded struct {
	into    proto.Message
	name    []hop // where its model stands
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
	model, _ := peek(b.ReadOnlyData(), g.name)
	if g.refused = g.admit(string(model)); g.refused != nil {
		return nil
	}
	return proto.Unmarshal(b.ReadOnlyData(), g.into)
}

// Codec is the codec of a gRPC server on which an [Admitter] is registered; any other cannot decode its requests.
func Codec() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(grpcproto.Name)})
}
