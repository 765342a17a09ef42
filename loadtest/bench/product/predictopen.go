package product

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/openloop"
)

// OpenCase is one user and so many candidates, asked at a fixed rate whether or not the calls before
// were answered, with the shards at rest and while they learn.
type OpenCase struct {
	Candidates int
	Rate       float64 // calls a second
	Ratings    int     // a second, in the second comparison
	Each       time.Duration
	Rounds     int
	Most       float64 // ms: of the p99 at rest
	Target     float64 // of the p99 while learning, against that at rest
}

// OpenCases are those of a full run.
var OpenCases = []OpenCase{{Candidates: 1000, Rate: 500, Ratings: 1000, Each: 3 * time.Second, Rounds: 4, Most: 2, Target: 1.5}}

// openCase compares calls at rest with a gRPC method that computes the tower alone and answers the same
// bytes, then calls while ratings are learnt with calls at rest.
func openCase(ctx context.Context, r *bench.Runner, c Cluster, oc OpenCase) error {
	requests, err := candidateRequests(c.Model(), oc.Candidates, movies0)
	if err != nil {
		return err
	}
	tower, err := towerAlone(oc.Candidates)
	if err != nil {
		return err
	}
	return besideEcho(ctx, c.PredictAddr(), requests[0], oc.Candidates, tower, func(entry, bare *bytesClient, size int) error {
		pass := func(to *bytesClient) bench.Pass {
			return func(ctx context.Context) ([]float64, error) { return openPass(ctx, oc, to, requests, size) }
		}
		name := fmt.Sprintf("predict/candidates=%d,calls=%.0f/s", oc.Candidates, oc.Rate)
		if err := r.Compare(ctx, bench.Comparison{
			Name: name, Baseline: "gRPC and the tower alone",
			Figures: []bench.Figure{{Name: "p50", Unit: "ms", Better: bench.Lower}, {Name: "p99", Unit: "ms", Better: bench.Lower, Most: oc.Most}},
			Rounds:  oc.Rounds, Warm: oc.Rounds > 1, Ours: pass(entry), Peer: pass(bare),
		}); err != nil {
			return err
		}
		return r.Compare(ctx, bench.Comparison{
			Name: fmt.Sprintf("%s beside %d ratings/s", name, oc.Ratings), Baseline: "the same at rest",
			Figures: []bench.Figure{{Name: "p50", Unit: "ms", Better: bench.Lower}, {Name: "p99", Unit: "ms", Better: bench.Lower, Target: oc.Target}},
			Rounds:  oc.Rounds, Warm: oc.Rounds > 1, Ours: beside(c, oc.Ratings, pass(entry)), Peer: pass(entry),
		})
	})
}

// openPass calls at the case's rate and returns the p50 and p99 in milliseconds.
func openPass(ctx context.Context, oc OpenCase, to *bytesClient, requests [][]byte, size int) ([]float64, error) {
	return openQuantiles(ctx, oc, to, requests, size, 0.5, 0.99)
}

// openQuantiles calls at the case's rate and returns quantiles in milliseconds, counted from when each
// call was due.
func openQuantiles(ctx context.Context, oc OpenCase, to *bytesClient, requests [][]byte, size int, quantiles ...float64) ([]float64, error) {
	within, cancel := context.WithTimeout(ctx, oc.Each)
	defer cancel()
	var took []float64
	failed, call := "", sized(to, requests, size)
	err := openloop.Run(within, openloop.Config{Rate: oc.Rate, MaxInFlight: 1 << 14, Timeout: 30 * time.Second, Precise: true}, func(n int) openloop.Call {
		return func(ctx context.Context) error { return call(ctx, n) }
	}, func(a openloop.Answer) {
		took = append(took, a.Took.Seconds()*1000)
		failed = max(failed, a.Code)
	})
	switch {
	case err != nil:
		return nil, err
	case failed != "":
		return nil, fmt.Errorf("a call ended with %s", failed)
	case len(took) == 0:
		return nil, errors.New("no call was made")
	}
	slices.Sort(took)
	at := make([]float64, len(quantiles))
	for i, q := range quantiles {
		at[i] = took[int(q*float64(len(took)-1))]
	}
	return at, nil
}

// beside runs a pass while ratings are learnt at a rate.
func beside(c Cluster, perSecond int, pass bench.Pass) bench.Pass {
	const writes = 100 // a second
	return func(ctx context.Context) (got []float64, err error) {
		ctx, stop := context.WithCancel(ctx)
		wrote := make(chan error, 1)
		go func() { // ends with the pass, which waits for it
			w := kafka.NewWriter(kafka.WriterConfig{Brokers: c.Brokers()})
			defer w.Close()
			records, tick := ratings(20_000), time.NewTicker(time.Second/writes)
			defer tick.Stop()
			for at := 0; ; at += perSecond / writes {
				select {
				case <-ctx.Done():
					wrote <- nil
					return
				case <-tick.C:
				}
				some := slices.Clone(records[at%(len(records)-perSecond):][:perSecond/writes])
				for i := range some {
					some[i].Topic = c.Topic()
				}
				if _, err := w.Write(context.WithoutCancel(ctx), some...); err != nil {
					wrote <- fmt.Errorf("produce ratings: %w", err)
					return
				}
			}
		}()
		defer func() {
			stop()
			err = errors.Join(err, <-wrote)
		}()
		return pass(ctx)
	}
}

// candidateRequests are requests of one user and many of so many movies, the user given once.
func candidateRequests(model string, candidates, movies int) ([][]byte, error) {
	rng := rand.New(rand.NewPCG(8, uint64(candidates)))
	out := make([][]byte, 256)
	for i := range out {
		drawn := make([]int64, candidates)
		for j := range drawn {
			drawn[j] = 1 + rng.Int64N(int64(movies))
		}
		var err error
		out[i], err = proto.Marshal(&apis.PredictRequest{ModelSpec: tfserving.Spec(model, 0), Inputs: map[string]*tfserving.TensorProto{
			"user": tfserving.NewInt64([]int64{1 + rng.Int64N(users0)}), "movie": tfserving.NewInt64(drawn)}})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// towerAlone returns what scores so many rows of the demo's first model that lie in memory, once a call.
func towerAlone(rows int) (func() error, error) {
	spec := modelspec.MovieRanking()
	e, err := runtime.New(spec, clusterShards, rows)
	if err != nil {
		return nil, err
	}
	var values [][]float32
	for _, v := range e.Variables() {
		values = append(values, modelspec.InitVariable(spec, v))
	}
	w, err := e.Weights(1, values)
	if err != nil {
		return nil, err
	}
	b := e.NewBatch()
	for row := range rows {
		if err := b.Add(runtime.Sample{IDs: [][]int64{{modelspec.FID(1, 1)}, {modelspec.FID(2, int64(row))}}, Labels: []float32{0}}); err != nil {
			return nil, err
		}
	}
	if err := b.Seal(); err != nil {
		return nil, err
	}
	type lane struct {
		lane   runtime.Lane
		scores [][]float32
	}
	// Score uses the batch's memory: calls that come at once take turns.
	turn := make(chan *lane, 1)
	turn <- &lane{}
	return func() error {
		l := <-turn
		defer func() { turn <- l }()
		for i := range l.scores {
			l.scores[i] = l.scores[i][:0]
		}
		var err error
		l.scores, err = e.Score(&l.lane, b, w, l.scores)
		return err
	}, nil
}
