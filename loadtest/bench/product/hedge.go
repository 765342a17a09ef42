package product

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/openloop"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// The work of the hedge benchmark: lookups that fall due by the clock, of ids of one table.
const (
	hedgeKeys  = 100_000
	hedgeBatch = 200
	hedgeRate  = 500 // a second
	hedgeLate  = 50 * time.Millisecond
	hedgeEach  = 4 * time.Second
	hedgeOut   = 1024 // lookups under way: two seconds of them
	hedgeBZID  = "bench"
)

// Hedge measures an entry's lookups while one of a shard's two replicas answers 50 ms late, against
// the same lookups while both are well.
func Hedge() bench.Benchmark {
	return bench.Benchmark{Name: "hedge", About: "lookups while one of two replicas is 50 ms late, against both healthy", Run: func(ctx context.Context, r *bench.Runner) (err error) {
		h, err := startHedging(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.Close()) }()
		pass := func(late time.Duration) bench.Pass {
			return func(ctx context.Context) ([]float64, error) {
				h.late.Store(int64(late))
				return h.load(ctx)
			}
		}
		return r.Compare(ctx, bench.Comparison{
			Name: fmt.Sprintf("hedge/ids=%d,rate=%d", hedgeBatch, hedgeRate), Baseline: "both replicas healthy", Rounds: 5, Warm: true,
			Figures: []bench.Figure{{Name: "p50", Unit: "ms", Better: bench.Lower}, {Name: "p99", Unit: "ms", Better: bench.Lower, Target: 2},
				{Name: "lookups", Unit: "per lookup asked", Better: bench.Lower, Most: 1.05}},
			Ours: pass(hedgeLate), Peer: pass(0),
		})
	}}
}

// hedging is a client of two replicas of one shard, each behind a socket of its own.
type hedging struct {
	bus    bus.Bus
	pool   *rowwire.Pool
	client *rows.Client
	want   rows.Want
	free   chan *lookup // those that nobody uses
	late   atomic.Int64 // nanoseconds, of the second replica
	served atomic.Int64 // requests that reached a replica
	stop   context.CancelFunc
	done   *errgroup.Group
}

// lookup is one batch with what it asks.
type lookup struct {
	batch *runtime.Batch
	rows  *rows.Lookup
}

// replicaOf answers as its Handler does, but later.
type replicaOf struct {
	rows.Handler
	h    *hedging
	late bool
}

func (r replicaOf) Lookup(ctx context.Context, q *rowwire.LookupRequest) (*rowwire.LookupResponse, error) {
	r.h.served.Add(1)
	if late := time.Duration(r.h.late.Load()); r.late && late > 0 {
		timer := time.NewTimer(late)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, rowwire.Errorf(rowwire.Unavailable, "the caller has left")
		}
	}
	return r.Handler.Lookup(ctx, q)
}

func startHedging(ctx context.Context) (_ *hedging, err error) {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &hedging{bus: mem.New(), pool: rowwire.NewPool(nil), want: rows.Want{Model: psModel, Serves: 1, Version: 1, Job: psModel},
		free: make(chan *lookup, hedgeOut), stop: stop, done: new(errgroup.Group)}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if err := h.draw(); err != nil {
		return nil, err
	}
	if err := h.serve(ctx, run); err != nil {
		return nil, err
	}
	f := follow.New(h.bus.Log(), registry.Fleet.Only(hedgeBZID), follow.Options{})
	h.client = rows.NewClient(f, h.pool, rows.NewMetrics(prometheus.NewRegistry(), "bench"), time.Second, 1)
	h.done.Go(func() error { return f.Run(run) })
	select {
	case <-f.Ready():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	h.done.Go(func() error { h.client.Run(run); return nil })
	return h, h.answering(ctx)
}

// draw makes the lookups.
func (h *hedging) draw() error {
	e, err := runtime.New(itemSpec(psModel), 1, hedgeBatch)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range hedgeOut {
		l := &lookup{e.NewBatch(), rows.NewLookup(1)}
		for range hedgeBatch {
			if err := l.batch.Add(runtime.Sample{IDs: [][]int64{{modelspec.FID(1, rng.Int64N(hedgeKeys))}}, Labels: []float32{1}}); err != nil {
				return err
			}
		}
		if err := l.batch.Seal(); err != nil {
			return err
		}
		h.free <- l
	}
	return nil
}

// serve starts the two replicas, until run ends, and says so in the log.
func (h *hedging) serve(ctx, run context.Context) error {
	shard := &rows.Shard{Model: h.want.Model, Version: h.want.Version, Job: h.want.Job, Shards: 1}
	all := make([]table.Row, hedgeKeys)
	for i := range all {
		all[i] = table.Row{ID: modelspec.FID(1, int64(i)), Values: make([]float32, psDim)}
	}
	if err := shard.Declare(nil, psTable, psDim); err != nil {
		return err
	}
	if _, err := shard.Add(psTable, all); err != nil {
		return err
	}
	served := rows.NewHandler(func(string, uint32) []*rows.Shard { return []*rows.Shard{shard} })
	for n := range 2 {
		ln, err := rowwire.Listen(ctx, "127.0.0.1:0")
		if err != nil {
			return err
		}
		h.done.Go(func() error { return rowwire.Serve(run, ln, replicaOf{served, h, n == 1}, rowwire.Options{}) })
		one := &replica.Replica{ModelName: h.want.Model, ServerType: "ps", Replica: int32(n), Container: fmt.Sprint("c", n), RowsAddress: rowwire.Addr(ln.Addr()), Stat: replica.State_AVAILABLE}
		if _, err := h.bus.Log().Append(ctx, bus.Draft{Subject: replica.Subject(hedgeBZID, one.Key()), Expect: bus.Any,
			Event: &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: one}}}}); err != nil {
			return err
		}
	}
	return nil
}

// answering returns once the client has found the replicas.
func (h *hedging) answering(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		err := h.ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the replicas: %w", errors.Join(ctx.Err(), err))
		case <-time.After(startPoll):
		}
	}
}

// ask is one lookup.
func (h *hedging) ask(ctx context.Context) error {
	select {
	case l := <-h.free:
		defer func() { h.free <- l }()
		l.rows.Plan(h.want, false, l.batch)
		return h.client.Lookup(ctx, h.want, l.rows)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// load makes lookups by the clock, and returns their percentiles and how many requests each took.
func (h *hedging) load(ctx context.Context) ([]float64, error) {
	before := h.served.Load()
	until, cancel := context.WithTimeout(ctx, hedgeEach)
	defer cancel()
	rec := openloop.NewRecorder(time.Now(), nil)
	pace := openloop.Config{Rate: hedgeRate, MaxInFlight: hedgeOut, Timeout: time.Minute, Precise: true}
	if err := openloop.Run(until, pace, func(int) openloop.Call { return h.ask }, rec.Observe); err != nil {
		return nil, err
	}
	res, err := rec.Result()
	if err != nil || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	if res.Answered < res.Calls {
		return nil, fmt.Errorf("%d of %d lookups failed: %v", res.Calls-res.Answered, res.Calls, res.Errors)
	}
	return []float64{float64(res.P50), float64(res.P99), float64(h.served.Load()-before) / float64(res.Calls)}, nil
}

// Close ends the replicas and the client.
func (h *hedging) Close() error {
	h.stop()
	err := h.done.Wait()
	h.pool.Close()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, h.bus.Close())
}
