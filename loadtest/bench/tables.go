package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/peers"
)

// rowBatch is how many rows one call names.
const rowBatch = 2048

// tableID spreads row i over all 64-bit ids.
func tableID(i int) int64 { return int64(uint64(i) * 0x9e3779b97f4a7c15) }

// drawIDs are batches of ids of a table with so many rows, one list for each goroutine.
func drawIDs(rows int) [][][]int64 {
	all := make([][][]int64, threads())
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
const ceilingTime = passTime / 4

// rowRate has every goroutine call f with one batch after the other for a while, and
// returns millions of rows a second.
func rowRate(ctx context.Context, long time.Duration, f func(worker, i int) error) (float64, error) {
	var stop atomic.Bool
	var done atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	began := time.Now()
	for w := range threads() {
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
	g := &gather{c: c, ids: make([][][]uint32, threads()), out: make([][]byte, threads())}
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

// pass is a rate of ours in millions a second, and its share of what memory allows.
func (g *gather) pass(ours func(ctx context.Context) (float64, error)) Pass {
	return shareOf(g.rate, ours)
}

// shareOf is a rate of ours, and its share of a ceiling that is measured right before.
func shareOf(ceiling, ours func(ctx context.Context) (float64, error)) Pass {
	return func(ctx context.Context) ([]float64, error) {
		most, err := ceiling(ctx)
		if err != nil {
			return nil, err
		}
		got, err := ours(ctx)
		if err != nil {
			return nil, err
		}
		return []float64{got, got / most}, nil
	}
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

// TableLookup measures lookups of 64 B rows, copied out, beside a million updates a
// second and an expiry sweep that finds nothing to remove.
func TableLookup() Benchmark {
	return Benchmark{Name: "table-lookup", About: "rows of 64 B looked up beside 1 M updates/s and an expiry sweep, against libcuckoo, Go's map, TFRA", Run: func(ctx context.Context, r *Runner) error {
		for _, rows := range []int{320_000, 3_200_000, 32_000_000} {
			if err := r.tableLookup(ctx, rows); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (r *Runner) tableLookup(ctx context.Context, rows int) error {
	sgd, err := optim.NewSGD(1)
	if err != nil {
		return err
	}
	r.say("  making a table of %d rows", rows)
	t, err := fillTable(table.Config{Name: "lookup", Dim: 16, Optimizer: sgd, Initializer: table.Zeros{}, Capacity: rows}, rows)
	if err != nil {
		return err
	}
	g, err := newGather(rows, 128)
	if err != nil {
		return err
	}
	ids, out := drawIDs(rows), make([][]float32, threads())
	for w := range out {
		out[w] = make([]float32, rowBatch*16)
	}
	ours := func(ctx context.Context) (float64, error) {
		stop := updateAndSweep(t, ids[0])
		rate, err := rowRate(ctx, passTime, func(w, i int) error {
			runtime.Gosched() // the writer has no processor of its own
			found, err := t.Lookup(ids[w][i], out[w], nil)
			if err == nil && found != rowBatch {
				err = fmt.Errorf("%d rows of %d were found", found, rowBatch)
			}
			return err
		})
		updates, serr := stop()
		if serr != nil {
			return 0, serr
		}
		if updates < 0.5e6 {
			return 0, fmt.Errorf("only %.0f updates a second were made beside the lookups", updates)
		}
		return rate, err
	}
	name := fmt.Sprintf("table-lookup/rows=%d", rows)
	figures := []Figure{{Unit: "M rows/s", Better: Higher}, {Name: "of 128 B gather", Better: Higher}}
	if rows == 32_000_000 {
		figures[0].Least = 60
	}
	withPeer := func(baseline string, peer func(context.Context) (float64, error)) error {
		c := Comparison{Name: name, Baseline: baseline, Figures: figures, Warm: true, Ours: g.pass(ours)}
		if peer != nil {
			c.Peer = g.pass(peer)
		}
		return r.Compare(ctx, c)
	}
	r.say("  starting libcuckoo with %d rows", rows)
	cuckoo, err := peers.Cuckoo(ctx, rows, threads())
	if err := r.missing(err); err != nil {
		return err
	}
	if cuckoo != nil {
		if err := withPeer("libcuckoo find", millions(cuckoo, "find", 4_000_000)); err != nil {
			return err
		}
		if err := cuckoo.Close(); err != nil {
			return err
		}
	}
	r.say("  making a Go map of %d rows", rows)
	m := make(map[int64][16]float32, rows)
	for i := range rows {
		m[tableID(i)] = [16]float32{float32(i)}
	}
	if err := withPeer("Go map, no writer", func(ctx context.Context) (float64, error) {
		return rowRate(ctx, passTime, func(w, i int) error {
			for j, id := range ids[w][i] {
				v := m[id]
				copy(out[w][16*j:], v[:])
			}
			return nil
		})
	}); err != nil {
		return err
	}
	m = nil
	r.say("  starting TFRA with %d rows", rows)
	tfra, err := peers.TFRA(ctx, rows, 16)
	if err := r.missing(err); err != nil || tfra == nil {
		return err
	}
	if err := withPeer("TFRA CuckooHashTable", millions(tfra, "find", 2_000_000)); err != nil {
		return err
	}
	return tfra.Close()
}

func millions(p *peers.Peer, what string, n int) func(context.Context) (float64, error) {
	rate := peerRate(p, what, n)
	return func(ctx context.Context) (float64, error) {
		v, err := rate(ctx)
		if err != nil {
			return 0, err
		}
		return v[0] / 1e6, nil
	}
}

// updateAndSweep makes a million updates a second and sweeps for expired rows, until it
// is told to stop; it then says how many updates a second there were.
func updateAndSweep(t *table.Table, ids [][]int64) (stop func() (perSecond float64, err error)) {
	var done atomic.Bool
	var updates int
	var failed error
	var wg sync.WaitGroup
	began := time.Now()
	wg.Go(func() {
		grads := make([]float32, 16*1000)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; !done.Load() && failed == nil; i++ {
			<-tick.C
			for due := int(time.Since(began).Seconds() * 1e6); updates < due && failed == nil && !done.Load(); updates += 1000 {
				failed = t.Optimize(ids[(updates/1000)%256][:1000], grads, 2)
			}
			t.Expire(2, table.Expiry{DefaultDays: 1}, 1000)
		}
	})
	return func() (float64, error) {
		took := time.Since(began).Seconds()
		done.Store(true)
		wg.Wait()
		return float64(updates) / took, failed
	}
}

// TableApply measures gradients applied to rows by adagrad.
func TableApply() Benchmark {
	return Benchmark{Name: "table-apply", About: "gradients applied to rows by adagrad, against a gather of the same row bytes; update ceiling: these rows read, changed and written", Run: func(ctx context.Context, r *Runner) error {
		adagrad, err := optim.NewAdagrad(0.01, 0.1, 0)
		if err != nil {
			return err
		}
		for _, s := range []struct {
			dim  int
			rows []int
		}{{16, []int{320_000, 3_200_000, 32_000_000}}, {64, []int{80_000, 800_000, 8_000_000}}} {
			grads := random(rowBatch * s.dim)
			for _, rows := range s.rows {
				r.say("  making a table of %d rows of %d", rows, s.dim)
				t, err := fillTable(table.Config{Name: "apply", Dim: s.dim, Optimizer: adagrad, Initializer: table.Zeros{}, Capacity: rows}, rows)
				if err != nil {
					return err
				}
				g, err := newGather(rows, 8*s.dim) // weights and accumulators
				if err != nil {
					return err
				}
				ids := drawIDs(rows)
				r.sayDistance()
				err = r.Compare(ctx, Comparison{
					Name: fmt.Sprintf("table-apply/dim=%d,rows=%d", s.dim, rows), Baseline: fmt.Sprintf("gather of %d B rows", 8*s.dim), Warm: true,
					Figures: []Figure{{Unit: "M rows/s", Better: Higher, Target: 0.7}, {Name: "of update ceiling", Better: Higher}},
					Ours: shareOf(g.updateRate, func(ctx context.Context) (float64, error) {
						return rowRate(ctx, passTime, func(w, i int) error { return t.Optimize(ids[w][i], grads, 2) })
					}),
					Peer: shareOf(g.updateRate, g.rate),
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	}}
}
