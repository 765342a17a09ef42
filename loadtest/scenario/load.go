package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/loadtest/openloop"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
)

// Shed is the error code of a call that was due while MaxInFlight were under way, and
// so was never made.
const Shed = openloop.Shed

// LoadConfig is open-loop load: calls fall due by the clock, not by the answers.
type LoadConfig struct {
	Addr  string // serving port, host:port
	Model string
	Rate  float64 // calls per second
	Batch int     // examples per call; default 1

	// Example draws one example; nil: users 1..600 and movies 1..10000, evenly.
	Example func(*rand.Rand) rating.Record
	Inputs  *Inputs // of Model; nil: user and movie
	Seed    uint64

	MaxInFlight int           // default 256
	Timeout     time.Duration // of one call, from when it is made; default 1 s
	Conns       int           // connections, used in turn; default 2
	// Sampled names every n-th call with a request id, so that it leaves impressions;
	// 0: none.
	Sampled int
	Name    string // prefix of those ids
}

// LoadResult is what the clients saw. Latencies of answered calls, from the moment each
// was due.
type LoadResult struct {
	Predict report.Predict
	Seconds []report.LatencyPoint // by the second in which the call was due
	Spread  []report.Percentile
}

// Load calls the serving port until ctx ends, then waits for what is under way. Only
// a configuration that cannot be run is an error; failing calls are counted by code.
func Load(ctx context.Context, cfg LoadConfig) (LoadResult, error) {
	if !(cfg.Rate > 0) || math.IsInf(cfg.Rate, 0) || cfg.Batch < 0 || cfg.Batch > MaxBatch {
		return LoadResult{}, fmt.Errorf("load: %v calls of %d examples per second: the rate must be positive and the batch 1 to %d", cfg.Rate, cfg.Batch, MaxBatch)
	}
	if cfg.Model == "" {
		return LoadResult{}, errors.New("load: no model named")
	}
	cfg.Batch = cmp.Or(cfg.Batch, 1)
	cfg.Conns = cmp.Or(max(cfg.Conns, 0), 2)
	if cfg.Example == nil {
		cfg.Example = func(r *rand.Rand) rating.Record {
			return rating.Record{Rating: rating.Rating{User: 1 + r.Int64N(600), Movie: 1 + r.Int64N(10_000)}}
		}
	}
	clients := make([]*Client, cfg.Conns)
	for i := range clients {
		c, err := Dial(cfg.Addr)
		if err != nil {
			return LoadResult{}, err
		}
		defer c.Close()
		clients[i] = c
	}

	rec := openloop.NewRecorder(time.Now(), nil)
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6c6f6164))
	pace := openloop.Config{Rate: cfg.Rate, MaxInFlight: cfg.MaxInFlight, Timeout: cfg.Timeout}
	if err := openloop.Run(ctx, pace, func(n int) openloop.Call { return cfg.call(rng, clients, n) }, rec.Observe); err != nil {
		return LoadResult{}, err
	}
	res, err := rec.Result()
	return LoadResult{
		Predict: report.Predict{
			Rate: res.Achieved, P50: res.P50, P99: res.P99, Max: res.Max, Calls: res.Calls, Errors: res.Calls - res.Answered, Batch: cfg.Batch, ErrorsByCode: res.Errors,
		},
		Seconds: res.BySecond, Spread: res.Spread,
	}, err
}

// call prepares the n-th call.
func (cfg *LoadConfig) call(rng *rand.Rand, clients []*Client, n int) openloop.Call {
	recs := make([]rating.Record, cfg.Batch)
	for i := range recs {
		recs[i] = cfg.Example(rng)
	}
	id := ""
	if cfg.Sampled > 0 && n%cfg.Sampled == 0 {
		id = cfg.Name + "-load-" + strconv.Itoa(n)
	}
	return func(ctx context.Context) error {
		_, err := clients[n%len(clients)].Score(ctx, cfg.Inputs, cfg.Model, id, recs)
		return err
	}
}
