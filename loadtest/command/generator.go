package command

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/internal/wire/tfserving/drawn"
	"github.com/monolith-go/monolith/loadtest/openloop"
)

// maxAnswer bounds an answer.
const maxAnswer = 64 << 20

// generator asks one server.
type generator struct {
	s        Scenario
	conns    []*grpc.ClientConn
	requests []*apis.PredictRequest
}

// newGenerator connects, and draws the requests by the model's signature.
func newGenerator(ctx context.Context, s Scenario, target string) (*generator, error) {
	g := &generator{s: s}
	for range s.Connections {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
		if err != nil {
			g.close()
			return nil, fmt.Errorf("--target %q: %w", target, err)
		}
		g.conns = append(g.conns, conn)
	}
	if err := g.draw(ctx); err != nil {
		g.close()
		return nil, fmt.Errorf("model server at %s: %w", target, err)
	}
	return g, nil
}

func (g *generator) draw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	def, err := drawn.Signature(ctx, tfserving.NewPredictionClient(g.conns[0]), tfserving.Spec(g.s.Model, g.s.Version), g.s.Signature)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(g.s.Seed, 0x6472617773))
	for range g.s.Requests {
		in, err := drawn.Inputs(rng, def, drawn.Options{Samples: g.s.Batch, MaxID: g.s.MaxID, Shared: g.s.Shared})
		if err != nil {
			return err
		}
		spec := tfserving.Spec(g.s.Model, g.s.Version)
		spec.SignatureName = g.s.Signature
		g.requests = append(g.requests, &apis.PredictRequest{ModelSpec: spec, Inputs: in})
	}
	return nil
}

func (g *generator) close() {
	for _, conn := range g.conns {
		_ = conn.Close()
	}
}

// run loads the server for a while, after the warm-up, which does not count. log gets each second; it may be nil.
func (g *generator) run(ctx context.Context, rate float64, lasts time.Duration, log func(start time.Time) (*openloop.Log, error)) (openloop.Result, error) {
	if g.s.Warmup > 0 {
		if err := g.load(ctx, rate, g.s.Warmup, func(openloop.Answer) {}); err != nil {
			return openloop.Result{}, err
		}
	}
	start := time.Now()
	recorder := openloop.NewRecorder(start, nil)
	if log != nil {
		l, err := log(start)
		if err != nil {
			return openloop.Result{}, err
		}
		recorder = openloop.NewRecorder(start, l.Second)
	}
	if err := g.load(ctx, rate, lasts, recorder.Observe); err != nil {
		return openloop.Result{}, err
	}
	res, err := recorder.Result()
	if err == nil && ctx.Err() != nil {
		err = errors.New("the load was cut off")
	}
	return res, err
}

func (g *generator) load(ctx context.Context, rate float64, lasts time.Duration, observe func(openloop.Answer)) error {
	until, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	clients := make([]*tfserving.PredictionClient, len(g.conns))
	for i, conn := range g.conns {
		clients[i] = tfserving.NewPredictionClient(conn)
	}
	pace := openloop.Config{Rate: rate, Poisson: g.s.Arrivals == "poisson", Seed: g.s.Seed, MaxInFlight: g.s.MaxInFlight, Timeout: g.s.Timeout, Precise: true}
	return openloop.Run(until, pace, func(n int) openloop.Call {
		client, req := clients[n%len(clients)], g.requests[n%len(g.requests)]
		return func(ctx context.Context) error {
			_, err := client.Predict(ctx, req)
			return err
		}
	}, observe)
}
