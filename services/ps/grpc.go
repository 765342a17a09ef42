package ps

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/internal/wire/pspb"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/publish"
)

const grpcStreams = 64 // calls of one connection answered at once

// grpcServer is the shard for clients that speak gRPC; what it does not answer itself
// it hands to the row protocol's server.
type grpcServer struct {
	s    *Server
	rows *rowServer
}

// serveGRPC answers on ln until ctx ends. conf, unless nil, encrypts.
func (s *Server) serveGRPC(ctx context.Context, ln net.Listener, conf *tls.Config) error {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(rowwire.MaxFrame), grpc.MaxSendMsgSize(rowwire.MaxFrame), grpc.MaxConcurrentStreams(grpcStreams),
		grpc.ConnectionTimeout(5 * time.Second), grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 10 * time.Second}),
	}
	if conf != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(conf)))
	}
	srv := grpc.NewServer(opts...)
	pspb.RegisterParameterServerServer(srv, &grpcServer{s: s, rows: &rowServer{st: s.st, m: s.m, tracer: s.tracer}})
	lights := health.NewServer()
	healthpb.RegisterHealthServer(srv, lights)
	lights.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { s.showHealth(inner, lights) })
	wg.Go(func() {
		<-inner.Done()
		lights.Shutdown()
		hard := time.AfterFunc(s.cfg.Drain, srv.Stop)
		defer hard.Stop()
		srv.GracefulStop()
	})
	err := srv.Serve(ln)
	cancel()
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// showHealth keeps grpc's health service at what health says, until ctx ends.
func (s *Server) showHealth(ctx context.Context, lights *health.Server) {
	for {
		why, changed := s.st.Refusal()
		now := healthpb.HealthCheckResponse_NOT_SERVING
		if why == nil {
			now = healthpb.HealthCheckResponse_SERVING
		}
		lights.SetServingStatus("", now)
		lights.SetServingStatus(pspb.ParameterServer_ServiceDesc.ServiceName, now)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// statusOf makes a gRPC status of a refusal.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	var row *rowwire.Error
	if errors.As(err, &row) {
		code := map[rowwire.Code]codes.Code{
			rowwire.Invalid: codes.InvalidArgument, rowwire.NotFound: codes.NotFound, rowwire.Unavailable: codes.Unavailable,
		}[row.Code]
		if code == codes.OK {
			code = codes.FailedPrecondition
		}
		st := status.New(code, row.Message)
		if full, derr := st.WithDetails(&pspb.Refusal{Code: row.Code.String(), Next: row.Next}); derr == nil {
			st = full
		}
		return st.Err()
	}
	var refused *bus.CommandError
	if !errors.As(err, &refused) {
		errors.As(refusal(err), &refused)
	}
	code, known := map[string]codes.Code{
		bus.CodeInvalid: codes.InvalidArgument, bus.CodeNotFound: codes.NotFound, bus.CodeConflict: codes.FailedPrecondition, bus.CodeUnavailable: codes.Unavailable,
	}[refused.Code]
	if !known {
		code = codes.Internal
	}
	return status.Error(code, refused.Message)
}

func signedIDs(ids []uint64) []int64 {
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}

func (g *grpcServer) Lookup(ctx context.Context, r *pspb.LookupRequest) (*pspb.LookupResponse, error) {
	q := &rowwire.LookupRequest{Model: r.GetModel(), Shard: r.GetShard(), Turn: r.GetTurn(), Generation: r.GetGeneration()}
	for _, t := range r.GetTables() {
		q.Tables = append(q.Tables, rowwire.TableIDs{Table: t.GetTable(), IDs: signedIDs(t.GetIds())})
	}
	res, err := g.rows.Lookup(ctx, q)
	if err != nil {
		return nil, statusOf(err)
	}
	defer res.Done()
	out := &pspb.LookupResponse{Step: res.Step}
	for i, v := range res.Values {
		b, err := rowwire.Pack(rowwire.Encoding(r.GetEncoding()), v, len(q.Tables[i].IDs))
		if err != nil {
			return nil, statusOf(err)
		}
		dim, err := g.s.st.Dim(q.Tables[i].Table)
		if err != nil {
			return nil, statusOf(err)
		}
		out.Tables = append(out.Tables, &pspb.TableRows{Dim: uint32(dim), Values: b})
	}
	return out, nil
}

func (g *grpcServer) Apply(ctx context.Context, r *pspb.ApplyRequest) (*pspb.ApplyResponse, error) {
	began := time.Now()
	q, err := g.decodeApply(ctx, r)
	if err != nil {
		g.s.m.apply(time.Since(began), 0, false, nil, err) // it failed like any other
		return nil, statusOf(err)
	}
	res, err := g.rows.Apply(ctx, q)
	if err != nil {
		return nil, statusOf(err)
	}
	return &pspb.ApplyResponse{Applied: res.Applied, Next: res.Next}, nil
}

func (g *grpcServer) decodeApply(ctx context.Context, r *pspb.ApplyRequest) (*rowwire.ApplyRequest, error) {
	q := &rowwire.ApplyRequest{
		Job: r.GetJob(), Shard: r.GetShard(), Partition: r.GetPartition(), Epoch: r.GetEpoch(), From: r.GetFrom(), To: r.GetTo(),
		RecordUnix: r.GetRecordUnix(), Turn: r.GetTurn(), Generation: r.GetGeneration(), Traceparent: r.GetTraceparent(),
		Part: r.GetPart(), Parts: r.GetParts(),
	}
	if q.Traceparent == "" {
		q.Traceparent = tracectx.Of(ctx)
	}
	for _, t := range r.GetTables() {
		dim, err := g.s.st.Dim(t.GetTable())
		if err != nil {
			return nil, err
		}
		v, err := rowwire.Unpack(rowwire.Encoding(r.GetEncoding()), t.GetGradients(), len(t.GetIds()), dim)
		if err != nil {
			return nil, err
		}
		q.Tables = append(q.Tables, rowwire.TableGrads{Table: t.GetTable(), IDs: signedIDs(t.GetIds()), Grads: v})
	}
	for _, d := range r.GetDense() {
		v, err := rowwire.Unpack(rowwire.FP32, d.GetValues(), len(d.GetValues())/4, 1)
		if err != nil {
			return nil, err
		}
		q.Dense = append(q.Dense, rowwire.NamedTensor{Name: d.GetName(), At: d.GetAt(), Values: v})
	}
	return q, nil
}

func (g *grpcServer) Assign(ctx context.Context, r *pspb.AssignRequest) (*pspb.AssignResponse, error) {
	v, err := rowwire.Unpack(rowwire.FP32, r.GetValues(), len(r.GetValues())/4, 1)
	if err != nil {
		return nil, statusOf(err)
	}
	res, err := g.s.assign(ctx, shardcmd.AssignRequest{RequestID: r.GetRequestId(), Table: r.GetTable(), IDs: signedIDs(r.GetIds()), Values: v, Add: r.GetAdd()})
	if err != nil {
		return nil, statusOf(err)
	}
	return &pspb.AssignResponse{SyncSeq: res.SyncSeq}, nil
}

func (g *grpcServer) Dense(ctx context.Context, r *pspb.DenseRequest) (*pspb.DenseResponse, error) {
	res, err := g.rows.Dense(ctx, &rowwire.DenseRequest{Job: r.GetJob(), Shard: r.GetShard(), Names: r.GetNames(), At: r.GetAt(), Turn: r.GetTurn(), Generation: r.GetGeneration()})
	if err != nil {
		return nil, statusOf(err)
	}
	out := &pspb.DenseResponse{Step: res.Step}
	for _, t := range res.Tensors {
		out.Tensors = append(out.Tensors, &pspb.Tensor{Name: t.Name, At: t.At, Values: publish.Floats(t.Values)})
	}
	return out, nil
}

func (g *grpcServer) Offsets(ctx context.Context, r *pspb.OffsetsRequest) (*pspb.OffsetsResponse, error) {
	res, err := g.rows.Offsets(ctx, &rowwire.OffsetsRequest{Job: r.GetJob(), Shard: r.GetShard()})
	if err != nil {
		return nil, statusOf(err)
	}
	return &pspb.OffsetsResponse{Epoch: res.Epoch, Step: res.Step, Turn: res.Turn, Generation: res.Generation, Next: res.Next}, nil
}

func (g *grpcServer) Barrier(ctx context.Context, r *pspb.BarrierRequest) (*pspb.BarrierResponse, error) {
	res, err := g.s.barriers.wait(ctx, shardcmd.BarrierRequest{
		ID: r.GetBarrierId(), Worker: r.GetWorker(), NumWorkers: int(r.GetNumWorkers()), Round: r.GetRound(), TimeoutMS: r.GetTimeoutMs(),
	})
	if err != nil {
		return nil, statusOf(err)
	}
	return &pspb.BarrierResponse{Round: res.Round, Workers: res.Workers}, nil
}

func (g *grpcServer) Stats(context.Context, *pspb.StatsRequest) (*pspb.StatsResponse, error) {
	res, err := g.s.stats()
	if err != nil {
		return nil, statusOf(err)
	}
	calls := func(c shardcmd.CallStats) *pspb.CallStats {
		return &pspb.CallStats{Count: c.Count, Failed: c.Failed, Rows: c.Rows, AvgLatencyUs: c.AvgLatencyUS}
	}
	return &pspb.StatsResponse{
		Lookup: calls(res.Lookup), Dense: calls(res.Dense), Apply: calls(res.Apply), Rows: res.Rows, Touched: res.Touched, Epoch: res.Epoch, Step: res.Step,
	}, nil
}
