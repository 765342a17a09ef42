//go:build unix

package table_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

// The full size of the target is 32 M rows: go test -bench . -rows 32000000.
var rowsFlag = flag.Int("rows", 320_000, "rows of the benchmarks' smallest table")

var filled sync.Map // name -> *table.Table, shared by the runs of a benchmark

// benchTable returns a table of n rows with ids 0 to n-1 times an odd number.
func benchTable(b *testing.B, cfg table.Config, n int) *table.Table {
	b.Helper()
	cfg.Name = fmt.Sprintf("%d/%d/%T/%T", cfg.Dim, n, cfg.Optimizer, cfg.Compressor)
	cfg.Initializer, cfg.Capacity = table.Zeros{}, n
	name, dim := cfg.Name, cfg.Dim
	if t, ok := filled.Load(name); ok {
		return t.(*table.Table)
	}
	filled.Clear()
	tab, err := table.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	const some = 4096
	ids, v := make([]int64, some), make([]float32, some*dim)
	for i := range v {
		v[i] = float32(i%100) / 100
	}
	for at := 0; at < n; at += some {
		k := min(some, n-at)
		for i := range k {
			ids[i] = benchID(at + i)
		}
		if err := tab.Assign(ids[:k], v[:k*dim], 1, 0); err != nil {
			b.Fatal(err)
		}
	}
	filled.Store(name, tab)
	return tab
}

func benchID(i int) int64 { return int64(uint64(i) * 0x9e3779b97f4a7c15) }

// batches draws ids of rows, so many that the ids themselves come from memory in order.
func batches(n, count int, seed uint64) []int64 {
	r := rand.New(rand.NewPCG(seed, 1))
	ids := make([]int64, count)
	for i := range ids {
		ids[i] = benchID(r.IntN(n))
	}
	return ids
}

const batch = 2048

// spread runs f on batches of ids on two goroutines, b.N batches in all.
func spread(b *testing.B, n int, f func(worker int, ids []int64)) {
	const drawn = 256
	var ids [2][]int64
	for w := range ids {
		ids[w] = batches(n, drawn*batch, uint64(w+1))
	}
	var next atomic.Int64
	var group sync.WaitGroup
	b.ResetTimer()
	cpu := cpuTime()
	for w := range 2 {
		group.Go(func() {
			for {
				i := int(next.Add(1))
				if i > b.N {
					return
				}
				at := i % drawn * batch
				f(w, ids[w][at:at+batch])
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds()/1e6, "Mrows/s")
	b.ReportMetric(float64(cpuTime()-cpu)/(float64(b.N)*batch), "cpu-ns/row")
}

// cpuTime tells what work costs on a machine that others use too.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func sizes(b *testing.B, f func(b *testing.B, rows int)) {
	for _, x := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("%dx", x), func(b *testing.B) {
			if x**rowsFlag > 40_000_000 {
				b.Skipf("%d rows: too many for this machine", x**rowsFlag)
			}
			f(b, x**rowsFlag)
		})
	}
}

// Rows of 64 bytes, copied out.
func BenchmarkLookup(b *testing.B) {
	sizes(b, func(b *testing.B, rows int) {
		tab := benchTable(b, table.Config{Dim: 16, Optimizer: optim.SGD{LearningRate: 1}}, rows)
		var out [2][]float32
		for w := range out {
			out[w] = make([]float32, batch*16)
		}
		spread(b, rows, func(w int, ids []int64) {
			if n, err := tab.Lookup(ids, out[w], nil); err != nil || n != len(ids) {
				b.Error(n, err)
			}
		})
	})
}

// The same while a third goroutine updates a million rows a second and sweeps.
func BenchmarkLookupWhileUpdating(b *testing.B) {
	sizes(b, func(b *testing.B, rows int) {
		tab := benchTable(b, table.Config{Dim: 16, Optimizer: optim.SGD{LearningRate: 1}}, rows)
		stop, done := make(chan struct{}), make(chan struct{})
		var updates int
		go func() {
			defer close(done)
			ids, grads := batches(rows, 64*1000, 9), make([]float32, 16*1000)
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			start := time.Now()
			for {
				select {
				case <-stop:
					return
				case <-tick.C: // late where the lookups keep all processors
				}
				for due := int(time.Since(start).Microseconds()); updates+1000 <= due; updates += 1000 {
					if err := tab.Optimize(ids[updates%64000:][:1000], grads, uint32(updates)); err != nil {
						b.Error(err)
					}
				}
				tab.Expire(tab.Newest(), table.Expiry{DefaultDays: 36500}, 1000)
			}
		}()
		var out [2][]float32
		for w := range out {
			out[w] = make([]float32, batch*16)
		}
		spread(b, rows, func(w int, ids []int64) {
			if n, err := tab.Lookup(ids, out[w], nil); err != nil || n != len(ids) {
				b.Error(n, err)
			}
		})
		b.StopTimer()
		close(stop)
		<-done
		b.ReportMetric(float64(updates)/b.Elapsed().Seconds()/1e6, "Mupdates/s")
	})
}

func BenchmarkGatherCeiling(b *testing.B) {
	ceiling(b, []int{64, 128, 192, 256, 320, 512, 576}, func(c *table.Ceiling, which []uint32, out []byte) { c.Gather(which, out) })
}

func BenchmarkUpdateCeiling(b *testing.B) {
	ceiling(b, []int{128, 512}, func(c *table.Ceiling, which []uint32, _ []byte) { c.Update(which) })
}

func ceiling(b *testing.B, widths []int, f func(*table.Ceiling, []uint32, []byte)) {
	for _, width := range widths {
		b.Run(fmt.Sprint(width), func(b *testing.B) {
			sizes(b, func(b *testing.B, rows int) {
				rows = min(rows, 4<<30/width)
				c, err := table.NewCeiling(rows, width)
				if err != nil {
					b.Fatal(err)
				}
				var out [2][]byte
				var which [2][]uint32
				for w := range out {
					out[w] = make([]byte, batch*width)
					r := rand.New(rand.NewPCG(uint64(w), 2))
					which[w] = make([]uint32, 256*batch)
					for i := range which[w] {
						which[w][i] = r.Uint32N(uint32(rows))
					}
				}
				var at [2]int
				spread(b, rows, func(w int, ids []int64) {
					f(c, which[w][at[w]:][:batch], out[w])
					at[w] = (at[w] + batch) % len(which[w])
				})
			})
		})
	}
}

// Adagrad, weights and slots: rows of 128 and 512 bytes.
func BenchmarkApply(b *testing.B) {
	for _, dim := range []int{16, 64} {
		b.Run(fmt.Sprintf("dim%d", dim), func(b *testing.B) {
			sizes(b, func(b *testing.B, rows int) {
				rows = min(rows, 8<<30/(8*dim))
				tab := benchTable(b, table.Config{Dim: dim, Optimizer: adagrad}, rows)
				grads := make([]float32, batch*dim)
				for i := range grads {
					grads[i] = 1e-3
				}
				spread(b, rows, func(w int, ids []int64) {
					if err := tab.Optimize(ids, grads, 2); err != nil {
						b.Error(err)
					}
				})
			})
		})
	}
}

// One batch at a time, by one goroutine or split by Part for two.
func BenchmarkApplyInParts(b *testing.B) {
	const dim, rows, batch = 16, 3_200_000, 8192
	for parts := 1; parts <= 2; parts++ {
		b.Run(fmt.Sprint(parts), func(b *testing.B) {
			tab := benchTable(b, table.Config{Dim: dim, Optimizer: adagrad}, rows)
			all, split := batches(rows, 64*batch, 1), make([][2][]int64, 64)
			for i, id := range all {
				to := &split[i/batch][table.Part(id, parts)]
				*to = append(*to, id)
			}
			grads := make([]float32, batch*dim)
			b.ResetTimer()
			for i := range b.N {
				var group sync.WaitGroup
				for _, ids := range split[i%len(split)][:parts] {
					group.Go(func() {
						if err := tab.Optimize(ids, grads[:len(ids)*dim], 2); err != nil {
							b.Error(err)
						}
					})
				}
				group.Wait()
			}
			b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}
