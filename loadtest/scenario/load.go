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

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
)

// Shed is the error code of a call that was due while MaxInFlight were under way, and
// so was never made.
const Shed = "shed"

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

// answer is one finished call.
type answer struct {
	due  time.Time
	took time.Duration // from due
	code string        // "": answered
}

const (
	minLatency = 1          // microseconds
	maxLatency = 60_000_000 // one minute; more counts as that
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(minLatency, maxLatency, 3) }

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
	cfg.MaxInFlight = cmp.Or(max(cfg.MaxInFlight, 0), 256)
	cfg.Timeout = cmp.Or(max(cfg.Timeout, 0), time.Second)
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

	start := time.Now()
	answers := make(chan answer, 1024)
	go func() { // ends when its last call has ended, which the collector below waits for
		defer close(answers)
		dispatch(ctx, cfg, clients, start, answers)
	}()
	return collect(cfg, start, answers), nil
}

// dispatch makes each call when it is due.
func dispatch(ctx context.Context, cfg LoadConfig, clients []*Client, start time.Time, answers chan<- answer) {
	slots := make(chan struct{}, cfg.MaxInFlight)
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6c6f6164))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		due := start.Add(time.Duration(float64(n) / cfg.Rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		recs := make([]rating.Record, cfg.Batch)
		for i := range recs {
			recs[i] = cfg.Example(rng)
		}
		select {
		case slots <- struct{}{}:
		default:
			answers <- answer{due: due, code: Shed}
			continue
		}
		id := ""
		if cfg.Sampled > 0 && n%cfg.Sampled == 0 {
			id = cfg.Name + "-load-" + strconv.Itoa(n)
		}
		go func() { // owned by dispatch: it takes every slot before it returns
			defer func() { <-slots }()
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Timeout)
			defer cancel()
			_, err := clients[n%len(clients)].Score(call, cfg.Inputs, cfg.Model, id, recs)
			a := answer{due: due, took: time.Since(due)}
			if err != nil {
				a.code = status.Code(err).String()
			}
			answers <- a
		}()
	}
	for range cfg.MaxInFlight {
		slots <- struct{}{}
	}
}

// collect counts answers until there are no more.
func collect(cfg LoadConfig, start time.Time, answers <-chan answer) LoadResult {
	res := LoadResult{Predict: report.Predict{Batch: cfg.Batch, ErrorsByCode: map[string]int64{}}}
	all, second := newHistogram(), newHistogram()
	at, last := 0, start
	flush := func() {
		if n := second.TotalCount(); n > 0 {
			res.Seconds = append(res.Seconds, report.LatencyPoint{Second: float64(at), Count: n, P50: ms(second, 50), P99: ms(second, 99)})
			second.Reset()
		}
	}
	answered := int64(0)
	for a := range answers {
		res.Predict.Calls++
		if end := a.due.Add(a.took); end.After(last) {
			last = end
		}
		if a.code != "" {
			res.Predict.Errors++
			res.Predict.ErrorsByCode[a.code]++
			continue
		}
		answered++
		us := min(max(a.took.Microseconds(), minLatency), maxLatency)
		if s := int(a.due.Sub(start) / time.Second); s > at { // a late answer counts in the running second
			flush()
			at = s
		}
		_ = all.RecordValue(us) // within its range
		_ = second.RecordValue(us)
	}
	flush()
	res.Predict.P50, res.Predict.P99, res.Predict.Max = ms(all, 50), ms(all, 99), ms(all, 100)
	res.Predict.Rate = report.Unknown()
	if took := last.Sub(start).Seconds(); took > 0 {
		res.Predict.Rate = report.Figure(float64(answered) / took)
	}
	if answered > 0 {
		for _, p := range [...]float64{0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99, 100} {
			if p <= 99 || p == 100 || float64(answered)*(100-p)/100 >= 1 { // no percentile finer than one call
				res.Spread = append(res.Spread, report.Percentile{Percent: p, Ms: float64(ms(all, p))})
			}
		}
	}
	return res
}

func ms(h *hdrhistogram.Histogram, p float64) report.Figure {
	if h.TotalCount() == 0 {
		return report.Unknown()
	}
	return report.Figure(float64(h.ValueAtPercentile(p)) / 1000)
}
