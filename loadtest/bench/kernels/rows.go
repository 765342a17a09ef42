package kernels

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/bench"
)

// rowBatch is how many rows one call names.
const rowBatch = 2048

// tableID spreads row i over all 64-bit ids.
func tableID(i int) int64 { return int64(uint64(i) * 0x9e3779b97f4a7c15) }

// drawIDs are batches of ids of a table with so many rows, one list for each goroutine.
func drawIDs(rows int) [][][]int64 {
	all := make([][][]int64, bench.Threads())
	for w := range all {
		rng := rand.New(rand.NewPCG(uint64(rows), uint64(w)))
		all[w] = make([][]int64, 256)
		for i := range all[w] {
			all[w][i] = make([]int64, rowBatch)
			for j := range all[w][i] {
				all[w][i][j] = tableID(rng.IntN(rows))
			}
		}
	}
	return all
}

// ceilingTime is how long a gather is measured beside each pass.
const ceilingTime = bench.PassTime / 4

// rowRate has every goroutine call f with one batch after the other for a while, and
// returns millions of rows a second.
func rowRate(ctx context.Context, long time.Duration, f func(worker, i int) error) (float64, error) {
	var stop atomic.Bool
	var done atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	began := time.Now()
	for w := range bench.Threads() {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				if err := f(w, i%256); err != nil {
					failed.Store(&err)
					return
				}
				done.Add(rowBatch)
			}
		})
	}
	select {
	case <-time.After(long):
	case <-ctx.Done():
	}
	stop.Store(true)
	wg.Wait()
	took := time.Since(began).Seconds()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(done.Load()) / took / 1e6, ctx.Err()
}

// gather is what memory allows: rows of a width, copied from random places that are known
// beforehand.
type gather struct {
	c   *table.Ceiling
	ids [][][]uint32
	out [][]byte
}

func newGather(rows, width int) (*gather, error) {
	c, err := table.NewCeiling(rows, width)
	if err != nil {
		return nil, err
	}
	g := &gather{c: c, ids: make([][][]uint32, bench.Threads()), out: make([][]byte, bench.Threads())}
	for w := range g.ids {
		rng := rand.New(rand.NewPCG(uint64(rows), uint64(w)))
		g.out[w] = make([]byte, rowBatch*width)
		g.ids[w] = make([][]uint32, 256)
		for i := range g.ids[w] {
			g.ids[w][i] = make([]uint32, rowBatch)
			for j := range g.ids[w][i] {
				g.ids[w][i][j] = uint32(rng.IntN(rows))
			}
		}
	}
	return g, nil
}

func (g *gather) rate(ctx context.Context) (float64, error) {
	return rowRate(ctx, ceilingTime, func(w, i int) error { g.c.Gather(g.ids[w][i], g.out[w]); return nil })
}

// updateRate is the same for rows that are read, changed and written where they are.
func (g *gather) updateRate(ctx context.Context) (float64, error) {
	return rowRate(ctx, ceilingTime, func(w, i int) error { g.c.Update(g.ids[w][i]); return nil })
}

// fillTable makes rows 0 to n-1.
func fillTable(cfg table.Config, n int) (*table.Table, error) {
	t, err := table.New(cfg)
	if err != nil {
		return nil, err
	}
	ids, v := make([]int64, 4096), make([]float32, 4096*cfg.Dim)
	for i := range v {
		v[i] = float32(i%100) / 100
	}
	for at := 0; at < n; at += len(ids) {
		k := min(len(ids), n-at)
		for i := range k {
			ids[i] = tableID(at + i)
		}
		if err := t.Assign(ids[:k], v[:k*cfg.Dim], 1, 0); err != nil {
			return nil, err
		}
	}
	return t, nil
}
