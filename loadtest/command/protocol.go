package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"

	"github.com/monolith-go/monolith/internal/wire/inferencepb"
	"github.com/monolith-go/monolith/internal/wire/openinference"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/internal/wire/tfserving/drawn"
)

// The protocols in which a server is asked.
const (
	tensorflow = "tensorflow"  // TensorFlow Serving's, over gRPC
	kserve     = "kserve"      // the open inference protocol, over gRPC
	kserveREST = "kserve-rest" // the same over HTTP
)

var protocols = []string{tensorflow, kserve, kserveREST}

// maxAnswer bounds an answer.
const maxAnswer = 64 << 20

// send asks a server once, over one of the connections.
type send func(ctx context.Context, conn int) error

// asker asks one server in one protocol.
type asker interface {
	signature(ctx context.Context) (*for_core_protos_go_proto.SignatureDef, error)
	prepare(in map[string]*tfserving.TensorProto) (send, error)
	close()
}

func newAsker(s Scenario, target string) (asker, error) {
	if s.Protocol == kserveREST {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost, t.MaxConnsPerHost = s.MaxInFlight, s.MaxInFlight
		path := "/v2/models/" + s.Model
		if s.Version != 0 {
			path += "/versions/" + strconv.FormatInt(s.Version, 10)
		}
		return &restAsker{s: s, client: &http.Client{Transport: t}, url: "http://" + strings.TrimPrefix(target, "http://") + path}, nil
	}
	conns, err := dial(s, target)
	if err != nil {
		return nil, err
	}
	if s.Protocol == kserve {
		return openAsker{s, conns}, nil
	}
	return tensorflowAsker{s, conns}, nil
}

// connections are those to one server.
type connections []*grpc.ClientConn

func dial(s Scenario, target string) (all connections, err error) {
	for range s.Connections {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
		if err != nil {
			all.close()
			return nil, fmt.Errorf("--target %q: %w", target, err)
		}
		all = append(all, conn)
	}
	return all, nil
}

func (all connections) close() {
	for _, conn := range all {
		_ = conn.Close()
	}
}

type tensorflowAsker struct {
	s Scenario
	connections
}

func (t tensorflowAsker) signature(ctx context.Context) (*for_core_protos_go_proto.SignatureDef, error) {
	return drawn.Signature(ctx, tfserving.NewPredictionClient(t.connections[0]), tfserving.Spec(t.s.Model, t.s.Version), t.s.Signature)
}

func (t tensorflowAsker) prepare(in map[string]*tfserving.TensorProto) (send, error) {
	spec := tfserving.Spec(t.s.Model, t.s.Version)
	spec.SignatureName = t.s.Signature
	req := &apis.PredictRequest{ModelSpec: spec, Inputs: in}
	return func(ctx context.Context, conn int) error {
		_, err := tfserving.NewPredictionClient(t.connections[conn%len(t.connections)]).Predict(ctx, req)
		return err
	}, nil
}

type openAsker struct {
	s Scenario
	connections
}

func (o openAsker) signature(ctx context.Context) (*for_core_protos_go_proto.SignatureDef, error) {
	version, err := openinference.NewRequest(o.s.Model, o.s.Version, nil)
	if err != nil {
		return nil, err
	}
	m, err := inferencepb.NewGRPCInferenceServiceClient(o.connections[0]).ModelMetadata(ctx, &inferencepb.ModelMetadataRequest{Name: o.s.Model, Version: version.GetModelVersion()})
	return openinference.Signature(m.GetInputs()), err
}

func (o openAsker) prepare(in map[string]*tfserving.TensorProto) (send, error) {
	req, err := openinference.NewRequest(o.s.Model, o.s.Version, in)
	return func(ctx context.Context, conn int) error {
		_, err := inferencepb.NewGRPCInferenceServiceClient(o.connections[conn%len(o.connections)]).ModelInfer(ctx, req)
		return err
	}, err
}

// restAsker opens as many connections as there are requests under way: HTTP/1.1 has one on each.
type restAsker struct {
	s      Scenario
	client *http.Client
	url    string
}

func (r *restAsker) close() { r.client.CloseIdleConnections() }

func (r *restAsker) signature(ctx context.Context) (*for_core_protos_go_proto.SignatureDef, error) {
	body, err := r.call(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, err
	}
	m, err := openinference.DecodeModel(body)
	return openinference.Signature(m.GetInputs()), err
}

func (r *restAsker) prepare(in map[string]*tfserving.TensorProto) (send, error) {
	req, err := openinference.NewRequest(r.s.Model, r.s.Version, in)
	if err != nil {
		return nil, err
	}
	body, err := openinference.EncodeRequest(req)
	return func(ctx context.Context, _ int) error {
		_, err := r.call(ctx, http.MethodPost, r.url+"/infer", body)
		return err
	}, err
}

// call is one request; its errors have gRPC's codes.
func (r *restAsker) call(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := r.client.Do(req)
	if err != nil {
		if cause := ctx.Err(); cause != nil {
			return nil, status.FromContextError(cause).Err()
		}
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	said, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	err = errors.Join(err, res.Body.Close())
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	case res.StatusCode != http.StatusOK:
		return nil, status.Errorf(codeOf(res.StatusCode), "%s: %s", res.Status, bytes.TrimSpace(said))
	}
	return said, nil
}

// codeOf is the code that a server of gRPC would answer with in place of an HTTP status.
func codeOf(httpStatus int) codes.Code {
	for _, c := range []codes.Code{codes.InvalidArgument, codes.NotFound, codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded, codes.Internal} {
		if tfserving.HTTPStatus(c) == httpStatus {
			return c
		}
	}
	return codes.Unknown
}

// askPatience is how long a server may take to say what a model's inputs are.
const askPatience = 30 * time.Second
