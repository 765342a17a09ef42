package command

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/wire/tfserving/drawn"
	"github.com/monolith-go/monolith/loadtest/cluster"
	"github.com/monolith-go/monolith/loadtest/openloop"
	"github.com/monolith-go/monolith/loadtest/report"
)

// Measured is a run: what was measured, and what happened meanwhile.
type Measured struct {
	openloop.Result
	Capacity report.Figure `json:"capacity,omitzero"` // calls answered per second at most, where that was measured first
	Events   []report.Mark `json:"events,omitempty"`
}

// generator asks one server, which it may have started.
type generator struct {
	s       Scenario
	target  string
	own     *cluster.Cluster // nil: the server is somebody else's
	asker   asker
	sends   []send
	offered float64 // calls per second
	most    float64 // answered per second at most; 0: not measured
}

// newGenerator starts the server where none is named, connects, and draws the requests by the
// model's signature.
func newGenerator(ctx context.Context, s Scenario, target string, say cluster.Say) (_ *generator, err error) {
	g := &generator{s: s, target: target, offered: s.Rate}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if target == "" {
		if g.own, err = cluster.Start(ctx, cluster.Config{Shards: s.Shards, Replicas: s.Replicas, Seed: s.Seed, Say: say}); err != nil {
			return nil, err
		}
		if g.target = g.own.GRPC(); s.Protocol == kserveREST {
			g.target = g.own.REST()
		}
	} else if s.Event != "" {
		return nil, fmt.Errorf("%w: the event %q can happen to a server alone that is started here: leave --target out", flags.ErrUsage, s.Event)
	}
	if g.asker, err = newAsker(s, g.target); err != nil {
		return nil, err
	}
	if err := g.draw(ctx); err != nil {
		return nil, fmt.Errorf("model server at %s: %w", g.target, err)
	}
	if s.OfCapacity > 0 {
		if g.most, err = g.capacity(ctx); err != nil {
			return nil, err
		}
		g.offered = s.OfCapacity * g.most
		say("%.4g calls a second are answered at most, so %.4g are made", g.most, g.offered)
	}
	return g, nil
}

func (g *generator) draw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	def, err := g.asker.signature(ctx)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(g.s.Seed, 0x6472617773))
	for range g.s.Requests {
		in, err := drawn.Inputs(rng, def, drawn.Options{Samples: g.s.Batch, MaxID: g.s.MaxID, Skew: g.s.Skew, Shared: g.s.Shared})
		if err != nil {
			return err
		}
		call, err := g.asker.prepare(in)
		if err != nil {
			return err
		}
		g.sends = append(g.sends, call)
	}
	return nil
}

// close leaves the server, and ends it where it was started here.
func (g *generator) close() error {
	if g.asker != nil {
		g.asker.close()
	}
	if g.own != nil {
		return g.own.Close()
	}
	return nil
}

// callers ask at the same time, each waiting for its answer, to find how much is answered at most.
const callers = 16

// capacity is how many calls are answered a second, by callers that wait for their answers.
func (g *generator) capacity(ctx context.Context) (float64, error) {
	lasts := max(g.s.Duration/4, time.Second)
	until, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var answered atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	began := time.Now()
	for at := range callers {
		wg.Go(func() {
			for n := at; until.Err() == nil; n += callers {
				one, cancel := context.WithTimeout(ctx, max(g.s.Timeout, time.Second))
				err := g.sends[n%len(g.sends)](one, n)
				cancel()
				if err == nil {
					answered.Add(1)
				} else {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	rate := float64(answered.Load()) / time.Since(began).Seconds()
	if rate < 1 {
		err := errors.New("no call was answered")
		if last := failed.Load(); last != nil {
			err = *last
		}
		return 0, fmt.Errorf("measure what %s bears: %w", g.target, errors.Join(ctx.Err(), err))
	}
	return rate, nil
}

// run loads the server for a while, after the warm-up, which does not count. log gets each second; it may be nil.
func (g *generator) run(ctx context.Context, rate float64, lasts time.Duration, log func(start time.Time) (*openloop.Log, error)) (m Measured, err error) {
	if g.s.Warmup > 0 {
		if err := g.load(ctx, rate, g.s.Warmup, func(openloop.Answer) {}); err != nil {
			return m, err
		}
	}
	start := time.Now()
	recorder := openloop.NewRecorder(start, nil)
	if log != nil {
		l, err := log(start)
		if err != nil {
			return m, err
		}
		recorder = openloop.NewRecorder(start, l.Second)
	}
	ended := g.disturb(ctx, start, lasts, &m.Events)
	if err := errors.Join(g.load(ctx, rate, lasts, recorder.Observe), ended()); err != nil {
		return m, err
	}
	m.Capacity = report.Figure(g.most)
	m.Result, err = recorder.Result()
	if err == nil && ctx.Err() != nil {
		err = errors.New("the load was cut off")
	}
	return m, err
}

// disturb has the scenario's event happen once a third of the load is over, and for another third
// where it lasts. What ended returns when the load is over is its error; events are to be read then.
func (g *generator) disturb(ctx context.Context, start time.Time, lasts time.Duration, events *[]report.Mark) (ended func() error) {
	event := cluster.Disturbances[g.s.Event]
	if event == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithDeadline(ctx, start.Add(lasts))
	done := make(chan error, 1)
	go func() { // ended waits for it
		timer := time.NewTimer(time.Until(start.Add(lasts / 3)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			done <- nil
			return
		}
		done <- event(g.own, ctx, lasts/3, func(format string, args ...any) {
			*events = append(*events, report.Mark{Second: time.Since(start).Seconds(), Text: fmt.Sprintf(format, args...)})
		})
	}()
	return func() error {
		defer cancel()
		return <-done
	}
}

func (g *generator) load(ctx context.Context, rate float64, lasts time.Duration, observe func(openloop.Answer)) error {
	until, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	pace := openloop.Config{Rate: rate, Poisson: g.s.Arrivals == "poisson", Seed: g.s.Seed, MaxInFlight: g.s.MaxInFlight, Timeout: g.s.Timeout, Precise: true}
	return openloop.Run(until, pace, func(n int) openloop.Call {
		call := g.sends[n%len(g.sends)]
		return func(ctx context.Context) error { return call(ctx, n) }
	}, observe)
}
