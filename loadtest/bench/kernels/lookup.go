package kernels

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/peers"
)

// TableLookup measures lookups of 64 B rows, copied out, beside a million updates a
// second and an expiry sweep that finds nothing to remove.
func TableLookup() bench.Benchmark {
	return bench.Benchmark{Name: "table-lookup", About: "rows of 64 B looked up beside 1 M updates/s and an expiry sweep, against libcuckoo, Go's map, TFRA", Run: func(ctx context.Context, r *bench.Runner) error {
		for _, rows := range []int{320_000, 3_200_000, 32_000_000} {
			if err := tableLookup(ctx, r, rows); err != nil {
				return err
			}
		}
		return nil
	}}
}

func tableLookup(ctx context.Context, r *bench.Runner, rows int) error {
	sgd, err := optim.NewSGD(1)
	if err != nil {
		return err
	}
	r.Say("  making a table of %d rows", rows)
	t, err := fillTable(table.Config{Name: "lookup", Dim: 16, Optimizer: sgd, Initializer: table.Zeros{}, Capacity: rows}, rows)
	if err != nil {
		return err
	}
	g, err := newGather(rows, 128)
	if err != nil {
		return err
	}
	l := &lookups{rows: rows, table: t, gather: g, ids: drawIDs(rows), out: make([][]float32, bench.Threads())}
	for w := range l.out {
		l.out[w] = make([]float32, rowBatch*16)
	}
	if err := l.besideCuckoo(ctx, r); err != nil {
		return err
	}
	if err := l.besideMap(ctx, r); err != nil {
		return err
	}
	return l.besideTFRA(ctx, r)
}

// lookups are what one size of table-lookup looks up, and where to.
type lookups struct {
	rows   int
	table  *table.Table
	gather *gather
	ids    [][][]int64 // by thread
	out    [][]float32
}

// ours is the table's rate, while it is written and swept.
func (l *lookups) ours(ctx context.Context) (float64, error) {
	stop := updateAndSweep(l.table, l.ids[0])
	rate, err := rowRate(ctx, bench.PassTime, func(w, i int) error {
		runtime.Gosched() // the writer has no processor of its own
		found, err := l.table.Lookup(l.ids[w][i], l.out[w], nil)
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

func (l *lookups) compare(ctx context.Context, r *bench.Runner, baseline string, peer bench.Rate) error {
	figures := []bench.Figure{{Unit: "M rows/s", Better: bench.Higher}, {Name: "of 128 B gather", Better: bench.Higher}}
	if l.rows == 32_000_000 {
		figures[0].Least = 60
	}
	return r.Compare(ctx, bench.Comparison{
		Name: fmt.Sprintf("table-lookup/rows=%d", l.rows), Baseline: baseline, Figures: figures, Warm: true,
		Ours: bench.ShareOf(l.gather.rate, l.ours), Peer: bench.ShareOf(l.gather.rate, peer),
	})
}

func (l *lookups) besideCuckoo(ctx context.Context, r *bench.Runner) error {
	r.Say("  starting libcuckoo with %d rows", l.rows)
	cuckoo, err := peers.Cuckoo(ctx, l.rows, bench.Threads())
	if err := r.Missing(err); err != nil || cuckoo == nil {
		return err
	}
	if err := l.compare(ctx, r, "libcuckoo find", bench.PeerRate(cuckoo, "find", 4_000_000).Times(1e-6)); err != nil {
		return err
	}
	return cuckoo.Close()
}

func (l *lookups) besideMap(ctx context.Context, r *bench.Runner) error {
	r.Say("  making a Go map of %d rows", l.rows)
	m := make(map[int64][16]float32, l.rows)
	for i := range l.rows {
		m[tableID(i)] = [16]float32{float32(i)}
	}
	return l.compare(ctx, r, "Go map, no writer", func(ctx context.Context) (float64, error) {
		return rowRate(ctx, bench.PassTime, func(w, i int) error {
			for j, id := range l.ids[w][i] {
				v := m[id]
				copy(l.out[w][16*j:], v[:])
			}
			return nil
		})
	})
}

func (l *lookups) besideTFRA(ctx context.Context, r *bench.Runner) error {
	r.Say("  starting TFRA with %d rows", l.rows)
	tfra, err := peers.TFRA(ctx, l.rows, 16)
	if err := r.Missing(err); err != nil || tfra == nil {
		return err
	}
	if err := l.compare(ctx, r, "TFRA CuckooHashTable", bench.PeerRate(tfra, "find", 2_000_000).Times(1e-6)); err != nil {
		return err
	}
	return tfra.Close()
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
