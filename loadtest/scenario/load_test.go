package scenario

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
)

func TestLoad(t *testing.T) {
	const enough = 200
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var calls, sampled atomic.Int64
	srv := &server{before: func(_ context.Context, model, id string, users, movies []int64) error {
		if len(users) != 3 || len(movies) != 3 {
			return status.Error(codes.InvalidArgument, fmt.Sprint(len(users)))
		}
		if id != "" {
			sampled.Add(1)
		}
		n := calls.Add(1)
		if n == enough {
			stop()
		}
		if n%10 == 0 {
			return status.Error(codes.ResourceExhausted, "busy")
		}
		return nil
	}}
	begun := time.Now()
	res, err := Load(ctx, LoadConfig{Addr: serve(t, srv), Model: "movies", Rate: 400, Batch: 3, Seed: 1, Sampled: 20, Name: "t",
		MaxInFlight: 1 << 16, Timeout: wait.Patience})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun).Seconds()
	due := int64(took*400) + 1
	p := res.Predict
	if p.Calls < enough || p.Calls > due || p.Errors != p.Calls/10 || !maps.Equal(p.ErrorsByCode, map[string]int64{"ResourceExhausted": p.Errors}) {
		t.Errorf("%+v", p)
	}
	if want := (p.Calls + 19) / 20; sampled.Load() != want {
		t.Errorf("%d calls carried an id, want %d", sampled.Load(), want)
	}
	if !(p.P50 > 0 && p.P50 <= p.P99 && p.P99 <= p.Max) || float64(p.Rate) < float64(p.Calls-p.Errors)/took || p.Rate > 400 {
		t.Errorf("p50 %v, p99 %v, max %v, rate %v", p.P50, p.P99, p.Max, p.Rate)
	}
	if len(res.Seconds) == 0 || len(res.Spread) == 0 || res.Spread[len(res.Spread)-1].Percent != 100 {
		t.Errorf("seconds %+v, spread %+v", res.Seconds, res.Spread)
	}
}

// A server that stalls delays every call that falls due meanwhile, and the latencies
// say so; what no slot is left for is shed, and counted.
func TestLoadHidesNoStall(t *testing.T) {
	const rate, slots, stalled, all = 200, 20, 61, 120 // calls a second, and by number
	stall := make(chan struct{})
	var mu sync.Mutex
	srv := &server{before: func(context.Context, string, string, []int64, []int64) error {
		mu.Lock() // one at a time, the first one slowly
		defer mu.Unlock()
		<-stall
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	due := 0
	res, err := Load(ctx, LoadConfig{Addr: serve(t, srv), Model: "movies", Rate: rate, MaxInFlight: slots, Timeout: wait.Patience,
		Example: func(*rand.Rand) rating.Record {
			switch due++; due {
			case stalled:
				close(stall)
			case all:
				cancel()
			}
			return rating.Record{Rating: rating.Rating{User: 1, Movie: 1}}
		}})
	if err != nil {
		t.Fatal(err)
	}
	shed := res.Predict.ErrorsByCode[Shed]
	if shed < stalled-1-slots || shed != res.Predict.Errors {
		t.Errorf("%d calls shed during the stall (errors %v), want %d at least", shed, res.Predict.ErrorsByCode, stalled-1-slots)
	}
	// A call is prepared while the one before it falls due; the histogram has three digits.
	if got := float64(res.Predict.Max); got < 0.99*1000*(stalled-2)/rate {
		t.Errorf("greatest latency %v ms, but the server stalled while %d calls fell due", got, stalled-1)
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
