package ps

import (
	"context"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/internal/wire/pspb"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/publish"
	"github.com/monolith-go/monolith/services/ps/state"
)

func dialGRPC(t testing.TB, addr string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A client of gRPC and one of the row protocol see the same shard, under the same rules.
func TestTheSameShardOverGRPC(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.GRPC = "127.0.0.1:0"
	p := w.start(cfg)
	conn := dialGRPC(t, p.GRPCAddr(), insecure.NewCredentials())
	c, ctx := pspb.NewParameterServerClient(conn), soon(t)

	teachIt := &pspb.ApplyRequest{Job: job, Partition: 1, Epoch: 1, From: 0, To: 10, RecordUnix: 1000, Encoding: pspb.Encoding_FP16,
		Tables: []*pspb.TableGradients{{Table: "user", Ids: []uint64{1, 2}, Gradients: []byte{0, 0xbc, 0, 0xc0, 0, 0x42, 0, 0x44}}}, // -1 -2 3 4
		Dense:  []*pspb.Tensor{{Name: "out/bias", Values: publish.Floats([]float32{0.5})}}}
	for i, applied := range []bool{true, false} {
		a, err := c.Apply(ctx, teachIt)
		if err != nil || a.GetApplied() != applied || a.GetNext() != 10 {
			t.Fatalf("apply %d: %v, %v", i, a, err)
		}
	}
	if got := p.user(1, 2); !reflect.DeepEqual(got, []float32{1, 2, -3, -4}) {
		t.Errorf("the row protocol reads %v", got)
	}
	if _, err := c.Assign(ctx, &pspb.AssignRequest{RequestId: "a", Table: "user", Ids: []uint64{2}, Values: publish.Floats([]float32{8, 9})}); err != nil {
		t.Error(err)
	}
	for enc, want := range map[pspb.Encoding][]byte{
		pspb.Encoding_FP32: publish.Floats([]float32{1, 2, 8, 9, 0, 0}),
		pspb.Encoding_FP16: {0, 0x3c, 0, 0x40, 0, 0x48, 0x80, 0x48, 0, 0, 0, 0},
		pspb.Encoding_INT8: append(append(append(scaled(2.0/127), 64, 127), append(scaled(9.0/127), 113, 127)...), append(scaled(0), 0, 0)...),
	} {
		l, err := c.Lookup(ctx, &pspb.LookupRequest{Model: job, Tables: []*pspb.TableIDs{{Table: "user", Ids: []uint64{1, 2, 99}}}, Encoding: enc})
		if err != nil || len(l.GetTables()) != 1 || l.GetTables()[0].GetDim() != 2 || !reflect.DeepEqual(l.GetTables()[0].GetValues(), want) {
			t.Errorf("%v: %v, %v; want %v", enc, l, err, want)
		}
	}
	if d, err := c.Dense(ctx, &pspb.DenseRequest{Job: job, Names: []string{"out/bias"}}); err != nil || !reflect.DeepEqual(d.GetTensors()[0].GetValues(), publish.Floats([]float32{-0.5})) {
		t.Errorf("dense: %v, %v", d, err)
	}
	if o, err := c.Offsets(ctx, &pspb.OffsetsRequest{Job: job}); err != nil || o.GetNext()[1] != 10 {
		t.Errorf("offsets: %v, %v", o, err)
	}
	if b, err := c.Barrier(ctx, &pspb.BarrierRequest{BarrierId: "b", Worker: "w", NumWorkers: 1}); err != nil || b.GetRound() != 1 {
		t.Errorf("barrier: %v, %v", b, err)
	}
	if s, err := c.Stats(ctx, &pspb.StatsRequest{}); err != nil || s.GetApply().GetCount() != 2 || s.GetRows()["user"] != 2 || s.GetStep() != 1 {
		t.Errorf("stats: %v, %v", s, err)
	}
	if h, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: pspb.ParameterServer_ServiceDesc.ServiceName}); err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", h, err)
	}
	refusesOverGRPC(t, p, c, teachIt)
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// refusesOverGRPC holds that each refusal has its code, behind two applies of learnt.
func refusesOverGRPC(t *testing.T, p *proc, c pspb.ParameterServerClient, learnt *pspb.ApplyRequest) {
	t.Helper()
	ctx := soon(t)
	refused := func(name string, err error, code codes.Code, want string) *status.Status {
		t.Helper()
		st := status.Convert(err)
		if st.Code() != code || !strings.Contains(st.Message(), want) {
			t.Errorf("%s: %v, want %v about %q", name, err, code, want)
		}
		return st
	}
	learnt.From, learnt.To = 20, 30
	_, err := c.Apply(ctx, learnt)
	if d := refused("a gap", err, codes.FailedPrecondition, "rewind").Details(); len(d) != 1 || d[0].(*pspb.Refusal).GetCode() != "GAP" || d[0].(*pspb.Refusal).GetNext() != 10 {
		t.Errorf("a gap's detail: %v", d)
	}
	learnt.Tables[0].Gradients = learnt.Tables[0].Gradients[:7]
	_, err = c.Apply(ctx, learnt)
	refused("half a gradient", err, codes.InvalidArgument, "7 bytes are not 2 rows")
	learnt.Tables[0].Table = "nobody"
	_, err = c.Apply(ctx, learnt)
	refused("no such table", err, codes.NotFound, `"nobody"`)
	if s, err := c.Stats(ctx, &pspb.StatsRequest{}); err != nil || s.GetApply().GetCount() != 5 || s.GetApply().GetFailed() != 3 || !(s.GetApply().GetAvgLatencyUs() > 0) {
		t.Errorf("stats after three refusals: %v, %v", s, err)
	}
	_, err = c.Lookup(ctx, &pspb.LookupRequest{Model: "other"})
	refused("another job", err, codes.NotFound, "look the address up")
	_, err = c.Lookup(ctx, &pspb.LookupRequest{Model: job, Encoding: 9, Tables: []*pspb.TableIDs{{Table: "user", Ids: []uint64{1}}}})
	refused("an unknown encoding", err, codes.InvalidArgument, "encoding 9")
	_, err = c.Assign(ctx, &pspb.AssignRequest{Table: "user"})
	refused("no request id", err, codes.InvalidArgument, "requestId")
	_, err = c.Barrier(ctx, &pspb.BarrierRequest{BarrierId: "b", Worker: "w"})
	refused("no workers", err, codes.InvalidArgument, "0 workers")

	p.st.Suspend(rowwire.Errorf(rowwire.Unavailable, "resting"))
	_, err = c.Stats(ctx, &pspb.StatsRequest{})
	refused("a shard that rests", err, codes.Unavailable, "resting")
}

func scaled(x float32) []byte {
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(x))
}

// counted is a shard's state without a process around it.
func counted(t *testing.T) *state.Shard {
	s, err := state.New(state.Config{Job: job, Shards: 1}, pstest.Counting())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An apply over gRPC belongs to the trace that it names, else to that of the call.
func TestTheTraceOfAnApplyOverGRPC(t *testing.T) {
	const named = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	const called = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"
	g := &grpcServer{s: &Server{st: counted(t)}}
	for _, tc := range []struct{ named, called, want string }{{named, called, named}, {named, "", named}, {"", called, called}, {"", "", ""}} {
		q, err := g.decodeApply(tracectx.With(t.Context(), tc.called), &pspb.ApplyRequest{Traceparent: tc.named})
		if err != nil || q.Traceparent != tc.want {
			t.Errorf("named %q in a call of %q: %q, %v", tc.named, tc.called, q.Traceparent, err)
		}
	}
}

// A listener that fails ends the shard; the shard's own end is no failure of it.
func TestAGRPCListenerThatFails(t *testing.T) {
	s := newWorld(t).server(Config{Job: job, Model: "counting", Shards: 1, Dir: t.TempDir()})
	s.st = counted(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for ctx, fails := range map[context.Context]bool{t.Context(): true, ended: false} {
		ln, err := rowwire.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.serveGRPC(ctx, ln, nil); (err != nil) != fails {
			t.Errorf("alive %v: %v", fails, err)
		}
	}
}

func TestGRPCIsEncryptedLikeRows(t *testing.T) {
	authority := certs.NewAuthority(t)
	conf, err := authority.Issue("shard").Load()
	if err != nil {
		t.Fatal(err)
	}
	mine, err := authority.Issue("client").Load()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	cfg := w.config()
	cfg.GRPC, cfg.Listen = "127.0.0.1:0", "unix://"+t.TempDir()+"/rows"
	s, err := New(cfg, services.Env{BZID: bzid, Bus: w.bus, Metrics: prometheus.NewRegistry(), Rows: conf})
	if err != nil {
		t.Fatal(err)
	}
	p := w.run(s)
	mine.ServerName = "127.0.0.1"
	ask := func(creds credentials.TransportCredentials) error {
		_, err := pspb.NewParameterServerClient(dialGRPC(t, p.GRPCAddr(), creds)).Stats(soon(t), &pspb.StatsRequest{})
		return err
	}
	if err := ask(credentials.NewTLS(mine)); err != nil {
		t.Error(err)
	}
	if err := ask(insecure.NewCredentials()); status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("an unencrypted client: %v", err)
	}
}
