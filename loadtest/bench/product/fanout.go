package product

import (
	"context"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/loadtest/bench"
)

// FanOutCase is one user and so many candidates.
type FanOutCase struct {
	Candidates, Callers int
	Rate                float64 // calls a second, of the open loop
	Each                time.Duration
	Rounds              int
	Target              float64 // of the rate of callers that wait for their answers
	Most                float64 // ms: of the open loop's p99
}

// FanOutCases are those of a full run.
var FanOutCases = []FanOutCase{{Candidates: 1000, Callers: 8, Rate: 500, Each: 2 * time.Second, Rounds: 4, Target: 0.7, Most: 2}}

// FanOut measures an entry that asks its shards for many candidates' rows against a gRPC method of the same
// bytes that computes the tower over rows in memory: from callers that wait, and at a fixed rate.
func FanOut(start Start, cases []FanOutCase) bench.Benchmark {
	return bench.Benchmark{Name: "fan-out", About: "one user and many candidates through entry and shards, against gRPC of the same bytes and the tower alone", Run: eachLearnt(start, cases, fanOutCase)}
}

func fanOutCase(ctx context.Context, r *bench.Runner, c Cluster, fc FanOutCase) error {
	requests, err := candidateRequests(c.Model(), fc.Candidates, movies0)
	if err != nil {
		return err
	}
	tower, err := towerAlone(fc.Candidates)
	if err != nil {
		return err
	}
	return besideEcho(ctx, c.PredictAddr(), requests[0], fc.Candidates, tower, func(entry, bare *bytesClient, size int) error {
		pass := func(to *bytesClient) bench.Pass {
			return func(ctx context.Context) ([]float64, error) {
				closed, err := closedLoop(ctx, fc.Callers, fc.Each, sized(to, requests, size))
				if err != nil {
					return nil, err
				}
				open, err := openPass(ctx, OpenCase{Rate: fc.Rate, Each: fc.Each}, to, requests, size)
				return append(closed[:1], open...), err
			}
		}
		return r.Compare(ctx, bench.Comparison{
			Name: fmt.Sprintf("fan-out/candidates=%d,callers=%d,calls=%.0f/s", fc.Candidates, fc.Callers, fc.Rate), Baseline: "gRPC and the tower alone",
			Figures: []bench.Figure{{Name: "rate", Unit: "calls/s", Better: bench.Higher, Target: fc.Target}, {Name: "p50", Unit: "ms", Better: bench.Lower},
				{Name: "p99", Unit: "ms", Better: bench.Lower, Most: fc.Most}},
			Rounds: fc.Rounds, Warm: fc.Rounds > 1, Ours: pass(entry), Peer: pass(bare),
		})
	})
}

// sized are calls whose answers have a size.
func sized(to *bytesClient, requests [][]byte, size int) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		got, err := to.call(ctx, requests[i%len(requests)])
		if err == nil && len(got) != size {
			return fmt.Errorf("an answer of %d bytes where %d were due", len(got), size)
		}
		return err
	}
}
