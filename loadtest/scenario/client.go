// Package scenario plays a run against the public ports and nothing else: ratings into
// Kafka at a steady rate, each scored by the serving port before its label is out, and
// open-loop load on that port meanwhile.
package scenario

import (
	"context"
	"fmt"
	"math"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// MaxBatch bounds the examples of one Predict call.
const MaxBatch = 4096

// RequestIDKey is the gRPC metadata key that names a request in its impressions.
const RequestIDKey = "x-request-id"

// ImpressionKey is the key that asks for impressions.
const ImpressionKey = "x-impression"

// Client scores records through TensorFlow Serving's Predict. It is safe
// for concurrent use.
type Client struct {
	conn    *grpc.ClientConn
	predict *tfserving.PredictionClient
}

// Dial returns a client of the serving port at addr (host:port) without waiting for it.
// Without options the connection is in clear text.
func Dial(addr string, opts ...grpc.DialOption) (*Client, error) {
	if len(opts) == 0 {
		opts = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	conn, err := grpc.NewClient(addr, opts...)
	if err != nil {
		return nil, fmt.Errorf("serving port %s: %w", addr, err)
	}
	return &Client{conn: conn, predict: tfserving.NewPredictionClient(conn)}, nil
}

// Close ends the connection, and with it what is under way.
func (c *Client) Close() error { return c.conn.Close() }

// Score returns one score per record, in their order, by a model that reads inputs; nil: user and
// movie. The deadline is ctx's; a trace in ctx travels along. A gRPC status comes back as it is.
func (c *Client) Score(ctx context.Context, in *Inputs, model, requestID string, recs []rating.Record) ([]float64, error) {
	n := len(recs)
	if n == 0 || n > MaxBatch {
		return nil, fmt.Errorf("predict: %d examples; send 1 to %d", n, MaxBatch)
	}
	if requestID != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, RequestIDKey, requestID, ImpressionKey, "1")
	}
	if tp := tracectx.Of(ctx); tp != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", tp)
	}
	resp, err := c.predict.Predict(ctx, &apis.PredictRequest{
		ModelSpec: tfserving.Spec(model, 0),
		Inputs:    in.tensors(recs),
	})
	if err != nil {
		return nil, err
	}
	t := in.answer(resp.GetOutputs())
	if t == nil {
		return nil, fmt.Errorf("predict: model %s answered %d outputs, not one score", model, len(resp.GetOutputs()))
	}
	out, err := tfserving.Floats(nil, t, n)
	if err != nil {
		return nil, fmt.Errorf("predict: model %s: %w", model, err)
	}
	if len(out) != n {
		return nil, fmt.Errorf("predict: model %s answered %d scores for %d examples", model, len(out), n)
	}
	scores := make([]float64, len(out))
	for i, s := range out {
		if scores[i] = float64(s); math.IsNaN(scores[i]) || math.IsInf(scores[i], 0) {
			return nil, fmt.Errorf("predict: model %s scored example %d as %v", model, i, s)
		}
	}
	return scores, nil
}
