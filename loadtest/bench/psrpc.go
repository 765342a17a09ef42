package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
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
func PSRPC(start StartShard) Benchmark {
	return Benchmark{Name: "ps-rpc", About: "2,000 rows of 64 B looked up at a shard: in process, unix socket, TCP; against Redis MGET", Run: func(ctx context.Context, r *Runner) (err error) {
		s, err := start(ctx, psKeys)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		pool := rowwire.NewPool(nil)
		defer pool.Close()
		tcp, err := pool.Get(ctx, s.TCP())
		if err != nil {
			return err
		}
		unix, err := pool.Get(ctx, s.Unix())
		if err != nil {
			return err
		}
		near := s.Local().NewPool(nil)
		defer near.Close()
		here, err := near.Get(ctx, s.Unix())
		if err != nil {
			return err
		}
		redis, err := peers.StartRedis(ctx)
		if err == nil {
			defer func() { err = errors.Join(err, redis.Close()) }()
			err = redis.Set(slices.Collect(keys(psKeys)), make([]byte, 4*psDim))
		} else if errors.Is(err, peers.ErrMissing) {
			r.say("  %v", err)
			err = nil
		}
		if err != nil {
			return err
		}
		for _, n := range []int{psBatch / 100, psBatch / 10, psBatch} {
			draw := batches(n)
			peer := func(context.Context) ([]float64, error) {
				out := make([]byte, n*4*psDim)
				return latency(draw, func(ids []int64) error {
					got, err := redis.MGet(ids, out)
					if err == nil && got != len(out) {
						err = fmt.Errorf("%d bytes came back of %d", got, len(out))
					}
					return err
				})
			}
			if redis == nil {
				peer = nil
			}
			for _, way := range []struct {
				name      string
				mean, p99 float64 // most microseconds at psBatch keys
				lookup    func(context.Context, *rowwire.LookupRequest, *rowwire.LookupResponse) error
			}{
				{"in process", 30, 60, here.LookupInto},
				{"unix socket", 100, 200, unix.LookupInto},
				{"TCP loopback", 100, 200, tcp.LookupInto},
			} {
				c := Comparison{
					Name: fmt.Sprintf("ps-rpc/keys=%d %s", n, way.name), Baseline: "Redis MGET, TCP", Warm: true,
					Figures: []Figure{{Name: "mean", Unit: "us", Better: Lower}, {Name: "p99", Unit: "us", Better: Lower}},
					Ours: func(ctx context.Context) ([]float64, error) {
						var res rowwire.LookupResponse
						q := &rowwire.LookupRequest{Model: psModel, Tables: []rowwire.TableIDs{{Table: psTable}}}
						return latency(draw, func(ids []int64) error {
							q.Tables[0].IDs = ids
							return way.lookup(ctx, q, &res)
						})
					},
					Peer: peer,
				}
				if n == psBatch {
					c.Figures[0].Most, c.Figures[1].Most = way.mean, way.p99
				}
				if err := r.Compare(ctx, c); err != nil {
					return err
				}
			}
		}
		return nil
	}}
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
