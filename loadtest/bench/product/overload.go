package product

import (
	"context"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/openloop"
)

// OverloadCase is calls of one size that come so many times as fast as the server answers.
type OverloadCase struct {
	Batch, Callers int
	Times          float64
	Deadline       time.Duration
	Each           time.Duration
	Rounds         int
	Target         float64 // of the goodput, against the capacity
}

// OverloadCases are those of a full run.
var OverloadCases = []OverloadCase{{Batch: 1000, Callers: 16, Times: 2, Deadline: 100 * time.Millisecond, Each: 2 * time.Second, Rounds: 4, Target: 0.9}}

// Overload measures what is answered in time while twice as much is asked as can be, against what waiting
// callers get, which is the capacity.
func Overload(start Start, cases []OverloadCase) bench.Benchmark {
	return bench.Benchmark{Name: "overload", About: "answers in time at twice the capacity, against the capacity", Run: eachLearnt(start, cases, overloadCase)}
}

func overloadCase(ctx context.Context, r *bench.Runner, c Cluster, oc OverloadCase) error {
	requests, err := predictRequests(c.Model(), oc.Batch)
	if err != nil {
		return err
	}
	return besideEntry(ctx, c, requests[0], func(entry *bytesClient, answer []byte) error {
		call := sized(entry, requests, len(answer))
		capacity := func(ctx context.Context) ([]float64, error) {
			got, err := closedLoop(ctx, oc.Callers, oc.Each, call)
			if err != nil {
				return nil, err
			}
			return []float64{got[0], got[2]}, nil
		}
		before, err := capacity(ctx)
		if err != nil {
			return err
		}
		return r.Compare(ctx, bench.Comparison{
			Name: fmt.Sprintf("overload/batch=%d,times=%g,deadline=%v", oc.Batch, oc.Times, oc.Deadline), Baseline: fmt.Sprintf("%d callers that wait", oc.Callers),
			Figures: []bench.Figure{{Name: "goodput", Unit: "calls/s", Better: bench.Higher, Target: oc.Target},
				{Name: "answered p99", Unit: "ms", Better: bench.Lower, Most: float64(oc.Deadline.Milliseconds())}},
			Rounds: oc.Rounds, Warm: oc.Rounds > 1,
			Ours: func(ctx context.Context) ([]float64, error) { return overloaded(ctx, oc, oc.Times*before[0], call) },
			Peer: capacity,
		})
	})
}

// overloaded calls at a rate and returns how many calls a second were answered within the deadline, counted
// from when each was due, and the p99 of those that were answered at all.
func overloaded(ctx context.Context, oc OverloadCase, rate float64, call func(context.Context, int) error) ([]float64, error) {
	within, cancel := context.WithTimeout(ctx, oc.Each)
	defer cancel()
	answered := openloop.NewRecorder(time.Now(), nil)
	good := 0
	err := openloop.Run(within, openloop.Config{Rate: rate, Poisson: true, MaxInFlight: 1 << 14, Timeout: oc.Deadline}, func(n int) openloop.Call {
		return func(ctx context.Context) error { return call(ctx, n) }
	}, func(a openloop.Answer) {
		if a.Code == "" && a.Took <= oc.Deadline {
			good++
		}
		answered.Observe(a)
	})
	if err != nil {
		return nil, err
	}
	res, err := answered.Result()
	if err != nil {
		return nil, err
	}
	return []float64{float64(good) / oc.Each.Seconds(), float64(res.P99)}, nil
}
