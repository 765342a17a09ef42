package product

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/peers"
)

// The work of one lookup in the ps-rpc benchmark: keys drawn by Zipf's law from a table
// whose rows are 64 bytes.
const (
	psKeys  = 630_000
	psBatch = 2000
	psDim   = 16
	psTable = "item"
	psModel = "bench"
)

// Shard is a running parameter-server shard of model "bench", whose table "item" holds
// the keys 0 to psKeys-1 with rows of 16 numbers.
type Shard interface {
	TCP() string  // addresses of the row protocol
	Unix() string //
	// Local has the shard for pools of this process, at Unix.
	Local() *rowwire.Local
	Close() error
}

// StartShard makes one with so many keys.
type StartShard func(ctx context.Context, keys int) (Shard, error)

// PSRPC measures the latency of lookups at a parameter-server shard, one caller, each
// waiting for its answer.
func PSRPC(start StartShard) bench.Benchmark {
	return bench.Benchmark{Name: "ps-rpc", About: "2,000 rows of 64 B looked up at a shard: in process, unix socket, TCP; against Redis MGET", Run: func(ctx context.Context, r *bench.Runner) (err error) {
		s, err := start(ctx, psKeys)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		pool := rowwire.NewPool(nil)
		defer pool.Close()
		near := s.Local().NewPool(nil)
		defer near.Close()
		ways, err := waysTo(ctx, s, pool, near)
		if err != nil {
			return err
		}
		redis, err := filledRedis(ctx, r)
		if err != nil {
			return err
		}
		if redis != nil {
			defer func() { err = errors.Join(err, redis.Close()) }()
		}
		for _, n := range []int{psBatch / 100, psBatch / 10, psBatch} {
			draw := batches(n)
			for _, way := range ways {
				c := way.comparison(n, draw)
				if redis != nil {
					c.Peer = mget(redis, n, draw)
				}
				if err := r.Compare(ctx, c); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

// way is a road to the shard.
type way struct {
	name      string
	mean, p99 float64 // most microseconds at psBatch keys
	lookup    func(context.Context, *rowwire.LookupRequest, *rowwire.LookupResponse) error
}

// waysTo are the roads to s: near is a pool of this process, pool any other.
func waysTo(ctx context.Context, s Shard, pool, near *rowwire.Pool) ([]way, error) {
	tcp, err := pool.Get(ctx, s.TCP())
	if err != nil {
		return nil, err
	}
	unix, err := pool.Get(ctx, s.Unix())
	if err != nil {
		return nil, err
	}
	here, err := near.Get(ctx, s.Unix())
	if err != nil {
		return nil, err
	}
	return []way{
		{"in process", 30, 60, here.LookupInto},
		{"unix socket", 100, 200, unix.LookupInto},
		{"TCP loopback", 100, 200, tcp.LookupInto},
	}, nil
}

// comparison looks up the batches drawn, of n keys each; its peer is to be added.
func (w way) comparison(n int, draw [][]int64) bench.Comparison {
	c := bench.Comparison{
		Name: fmt.Sprintf("ps-rpc/keys=%d %s", n, w.name), Baseline: "Redis MGET, TCP", Warm: true,
		Figures: []bench.Figure{{Name: "mean", Unit: "us", Better: bench.Lower}, {Name: "p99", Unit: "us", Better: bench.Lower}},
		Ours: func(ctx context.Context) ([]float64, error) {
			var res rowwire.LookupResponse
			q := &rowwire.LookupRequest{Model: psModel, Tables: []rowwire.TableIDs{{Table: psTable}}}
			return latency(draw, func(ids []int64) error {
				q.Tables[0].IDs = ids
				return w.lookup(ctx, q, &res)
			})
		},
	}
	if n == psBatch {
		c.Figures[0].Most, c.Figures[1].Most = w.mean, w.p99
	}
	return c
}

// filledRedis is a Redis with the shard's keys, or nil where there is none.
func filledRedis(ctx context.Context, r *bench.Runner) (*peers.Redis, error) {
	redis, err := peers.StartRedis(ctx)
	if errors.Is(err, peers.ErrMissing) {
		r.Say("  %v", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := redis.Set(slices.Collect(keys(psKeys)), make([]byte, 4*psDim)); err != nil {
		return nil, errors.Join(err, redis.Close())
	}
	return redis, nil
}

// mget has Redis answer the same batches.
func mget(redis *peers.Redis, n int, draw [][]int64) bench.Pass {
	return func(context.Context) ([]float64, error) {
		out := make([]byte, n*4*psDim)
		return latency(draw, func(ids []int64) error {
			got, err := redis.MGet(ids, out)
			if err == nil && got != len(out) {
				err = fmt.Errorf("%d bytes came back of %d", got, len(out))
			}
			return err
		})
	}
}

func keys(n int64) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// batches are lookups of n keys each, by Zipf's law with exponent 1.2; the frequent keys
// lie anywhere in the table.
func batches(n int) [][]int64 {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	zipf := rand.NewZipf(rng, 1.2, 1, psKeys-1)
	place := rng.Perm(psKeys)
	out := make([][]int64, 64)
	for i := range out {
		out[i] = make([]int64, n)
		for j := range out[i] {
			out[i][j] = int64(place[zipf.Uint64()])
		}
	}
	return out
}

// latency makes calls for a second and returns their mean and 99th percentile in
// microseconds.
func latency(draw [][]int64, call func(ids []int64) error) ([]float64, error) {
	var took []time.Duration
	var sum time.Duration
	for began, i := time.Now(), 0; time.Since(began) < time.Second; i++ {
		at := time.Now()
		if err := call(draw[i%len(draw)]); err != nil {
			return nil, err
		}
		d := time.Since(at)
		took, sum = append(took, d), sum+d
	}
	slices.Sort(took)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	return []float64{us(sum) / float64(len(took)), us(took[len(took)*99/100])}, nil
}
