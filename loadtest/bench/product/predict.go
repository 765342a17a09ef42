package product

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/loadtest/bench"
)

const predictMethod = "/" + tfserving.PredictionService + "/Predict"

// PredictCase is one batch size.
type PredictCase struct {
	Batch, Callers int
	Each           time.Duration // of one pass
	Rounds         int
	RateTarget     float64
	TailTarget     float64 // of the p99
}

// PredictCases are the sizes of a full run. The baseline does no work at all, so the
// target is the share of its rate that must be left.
var PredictCases = []PredictCase{
	{Batch: 1, Callers: 8, Each: time.Second, Rounds: 5, RateTarget: 0.1, TailTarget: 15},
	{Batch: 10, Callers: 8, Each: time.Second, Rounds: 3, RateTarget: 0.05, TailTarget: 20},
	{Batch: 100, Callers: 8, Each: time.Second, Rounds: 3, RateTarget: 0.02, TailTarget: 60},
}

// Predict measures Predict calls from callers that each wait for their answer, through
// the entry and its serving shards, against a gRPC method that answers the same
// request bytes with the same response bytes and looks at neither; then calls that fall due by the clock.
func Predict(start Start, cases []PredictCase, open []OpenCase) bench.Benchmark {
	var all []predictRun
	for _, pc := range cases {
		all = append(all, func(ctx context.Context, r *bench.Runner, c Cluster) error { return predictCase(ctx, r, c, pc) })
	}
	for _, oc := range open {
		all = append(all, func(ctx context.Context, r *bench.Runner, c Cluster) error { return openCase(ctx, r, c, oc) })
	}
	return bench.Benchmark{Name: "predict", About: "TensorFlow Serving's Predict through entry and shards, against a bare gRPC echo of the same bytes",
		Run: eachLearnt(start, all, func(ctx context.Context, r *bench.Runner, c Cluster, run predictRun) error { return run(ctx, r, c) })}
}

// predictRun is a case of either kind.
type predictRun func(context.Context, *bench.Runner, Cluster) error

// startLearnt starts a cluster that serves what so many ratings taught.
func startLearnt(ctx context.Context, start Start) (Cluster, error) {
	c, err := start(ctx)
	if err != nil {
		return nil, err
	}
	ends, err := produce(ctx, c.Brokers(), c.Topic(), ratings(20_000))
	if err == nil {
		err = c.Served(ctx, ends)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// eachLearnt is a run of all cases beside such a cluster.
func eachLearnt[C any](start Start, cases []C, run func(context.Context, *bench.Runner, Cluster, C) error) func(context.Context, *bench.Runner) error {
	return func(ctx context.Context, r *bench.Runner) (err error) {
		c, err := startLearnt(ctx, start)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		for _, of := range cases {
			if err := run(ctx, r, c, of); err != nil {
				return err
			}
		}
		return nil
	}
}

// besideEntry hands do the entry over gRPC, with its answer to a request.
func besideEntry(ctx context.Context, c Cluster, request []byte, do func(entry *bytesClient, answer []byte) error) (err error) {
	entry, err := dialBytes(c.PredictAddr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, entry.close()) }()
	answer, err := entry.call(ctx, request)
	if err != nil {
		return err
	}
	return do(entry, answer)
}

func predictCase(ctx context.Context, r *bench.Runner, c Cluster, pc PredictCase) error {
	requests, err := predictRequests(c.Model(), pc.Batch)
	if err != nil {
		return err
	}
	atOnce := func() error { return nil }
	return besideEcho(ctx, c.PredictAddr(), requests[0], pc.Batch, atOnce, func(entry, bare *bytesClient, size int) error {
		pass := func(to *bytesClient) bench.Pass {
			return func(ctx context.Context) ([]float64, error) {
				return closedLoop(ctx, pc.Callers, pc.Each, sized(to, requests, size))
			}
		}
		return r.Compare(ctx, bench.Comparison{
			Name: fmt.Sprintf("predict/batch=%d,callers=%d", pc.Batch, pc.Callers), Baseline: fmt.Sprintf("gRPC echo, %d B in, %d B out", len(requests[0]), size),
			Figures: []bench.Figure{{Name: "rate", Unit: "calls/s", Better: bench.Higher, Target: pc.RateTarget}, {Name: "p50", Unit: "ms", Better: bench.Lower}, {Name: "p99", Unit: "ms", Better: bench.Lower, Target: pc.TailTarget}},
			Rounds:  pc.Rounds, Warm: true, Ours: pass(entry), Peer: pass(bare),
		})
	})
}

// besideEcho measures Predict at addr beside a gRPC method that calls work and then answers the same bytes,
// the size of which it tells. The first request is asked once for them, and must bring a score for each row.
func besideEcho(ctx context.Context, addr string, request []byte, rows int, work func() error, measure func(entry, bare *bytesClient, size int) error) (err error) {
	entry, err := dialBytes(addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, entry.close()) }()
	answer, err := entry.call(ctx, request)
	if err != nil {
		return err
	}
	if err := checkAnswer(answer, rows); err != nil {
		return err
	}
	echo, err := startEcho(answer, work)
	if err != nil {
		return err
	}
	defer echo.stop()
	bare, err := dialBytes(echo.addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	return measure(entry, bare, len(answer))
}

// predictRequests are requests of one size. Ids are drawn evenly, so that some rows are
// known to the model and others are not.
func predictRequests(model string, batch int) ([][]byte, error) {
	rng := rand.New(rand.NewPCG(7, uint64(batch)))
	out := make([][]byte, 256)
	for i := range out {
		users, movies := make([]int64, batch), make([]int64, batch)
		for j := range users {
			users[j], movies[j] = 1+rng.Int64N(users0), 1+rng.Int64N(movies0)
		}
		var err error
		out[i], err = proto.Marshal(&apis.PredictRequest{ModelSpec: tfserving.Spec(model, 0), Inputs: map[string]*tfserving.TensorProto{
			"user": tfserving.NewInt64(users), "movie": tfserving.NewInt64(movies)}})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func checkAnswer(raw []byte, batch int) error {
	var resp apis.PredictResponse
	if err := proto.Unmarshal(raw, &resp); err != nil {
		return fmt.Errorf("the answer does not decode: %w", err)
	}
	if len(resp.GetOutputs()) != 1 {
		return fmt.Errorf("the answer has %d outputs, not one", len(resp.GetOutputs()))
	}
	for _, t := range resp.GetOutputs() {
		scores, err := tfserving.Floats(nil, t, batch)
		if err != nil || len(scores) != batch {
			return fmt.Errorf("%d scores for %d examples: %w", len(scores), batch, err)
		}
	}
	return nil
}

// closedLoop calls from so many callers until the time is over, and returns the rate
// and the p50 and p99 of a call in milliseconds.
func closedLoop(ctx context.Context, callers int, each time.Duration, call func(context.Context, int) error) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, each+30*time.Second)
	defer cancel()
	var next atomic.Int64
	took := make([][]time.Duration, callers)
	errs := make([]error, callers)
	began := time.Now()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for last := began; last.Sub(began) < each; {
				if errs[c] = call(ctx, int(next.Add(1))); errs[c] != nil {
					return
				}
				now := time.Now()
				took[c] = append(took[c], now.Sub(last))
				last = now
			}
		})
	}
	wg.Wait()
	seconds := time.Since(began).Seconds()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	ms := func(q float64) float64 { return all[int(q*float64(len(all)-1))].Seconds() * 1000 }
	return []float64{float64(len(all)) / seconds, ms(0.5), ms(0.99)}, nil
}

// bytesCodec passes messages on as they are, under the name that every server knows.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// bytesClient is two connections, used in turn.
type bytesClient struct {
	conns [2]*grpc.ClientConn
	next  atomic.Uint64
}

func dialBytes(addr string) (*bytesClient, error) {
	return dialBytesBy(addr, insecure.NewCredentials())
}

func dialBytesBy(addr string, keys credentials.TransportCredentials) (*bytesClient, error) {
	c := new(bytesClient)
	for i := range c.conns {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(keys), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serving port %s: %w", addr, err), c.close())
		}
		c.conns[i] = conn
	}
	return c, nil
}

func (c *bytesClient) call(ctx context.Context, request []byte) (answer []byte, err error) {
	err = c.conns[c.next.Add(1)%uint64(len(c.conns))].Invoke(ctx, predictMethod, &request, &answer)
	return answer, err
}

func (c *bytesClient) close() error {
	var errs []error
	for _, conn := range c.conns {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}

// echo is a gRPC server whose Predict answers every request with one answer, after it has worked.
type echo struct {
	addr string
	stop func()
}

func startEcho(answer []byte, work func() error) (*echo, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}))
	s.RegisterService(&grpc.ServiceDesc{ServiceName: tfserving.PredictionService, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Predict",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var request []byte
			return &answer, errors.Join(decode(&request), work())
		},
	}}}, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ln) // ends with stop
	}()
	return &echo{addr: ln.Addr().String(), stop: func() { s.Stop(); <-done }}, nil
}
