package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/loadtest/report"
)

func TestLoad(t *testing.T) {
	var calls, sampled atomic.Int64
	srv := &server{before: func(_ context.Context, model, id string, users, movies []int64) error {
		if len(users) != 3 || len(movies) != 3 {
			return status.Error(codes.InvalidArgument, fmt.Sprint(len(users)))
		}
		if id != "" {
			sampled.Add(1)
		}
		if calls.Add(1)%10 == 0 {
			return status.Error(codes.ResourceExhausted, "busy")
		}
		return nil
	}}
	ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	begun := time.Now()
	res, err := Load(ctx, LoadConfig{Addr: serve(t, srv), Model: "movies", Rate: 400, Batch: 3, Seed: 1, Sampled: 20, Name: "t"})
	if err != nil {
		t.Fatal(err)
	}
	due := int64(time.Since(begun).Seconds()*400) + 1 // a busy machine ends late
	p := res.Predict
	if p.Calls < 150 || p.Calls > due || p.Errors != p.Calls/10 || !maps.Equal(p.ErrorsByCode, map[string]int64{"ResourceExhausted": p.Errors}) {
		t.Errorf("%+v", p)
	}
	if want := (p.Calls + 19) / 20; sampled.Load() != want {
		t.Errorf("%d calls carried an id, want %d", sampled.Load(), want)
	}
	if !(p.P50 > 0 && p.P50 <= p.P99 && p.P99 <= p.Max) || p.Rate < 200 || p.Rate > 400 {
		t.Errorf("p50 %v, p99 %v, max %v, rate %v", p.P50, p.P99, p.Max, p.Rate)
	}
	if len(res.Seconds) == 0 || len(res.Spread) == 0 || res.Spread[len(res.Spread)-1].Percent != 100 {
		t.Errorf("seconds %+v, spread %+v", res.Seconds, res.Spread)
	}
}

// A server that stalls delays every call that falls due meanwhile, and the latencies
// say so; what no slot is left for is shed, and counted.
func TestLoadHidesNoStall(t *testing.T) {
	const stall = 300 * time.Millisecond
	var begun time.Time
	var mu sync.Mutex
	srv := &server{before: func(context.Context, string, string, []int64, []int64) error {
		mu.Lock() // one at a time, the first one slowly
		defer mu.Unlock()
		if begun.IsZero() {
			begun = time.Now()
			timer := time.NewTimer(stall)
			defer timer.Stop()
			<-timer.C
		}
		return nil
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	res, err := Load(ctx, LoadConfig{Addr: serve(t, srv), Model: "movies", Rate: 200, MaxInFlight: 20, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	shed := res.Predict.ErrorsByCode[Shed]
	if shed < 10 || shed != res.Predict.Errors {
		t.Errorf("%d calls shed during the stall (errors %v), want about 40", shed, res.Predict.ErrorsByCode)
	}
	if got := float64(res.Predict.Max); got < 250 {
		t.Errorf("greatest latency %v ms, but the server stalled for %v", got, stall)
	}
	slow := res.Spread[slices.IndexFunc(res.Spread, func(p report.Percentile) bool { return p.Percent == 90 })].Ms
	if slow < 100 {
		t.Errorf("p90 is %v ms: the calls that were due during the stall are left out", slow)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, cfg := range map[string]LoadConfig{
		"no rate":    {Model: "m"},
		"no model":   {Rate: 1},
		"huge batch": {Model: "m", Rate: 1, Batch: MaxBatch + 1},
	} {
		if _, err := Load(t.Context(), cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
