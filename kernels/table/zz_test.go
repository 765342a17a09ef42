package table

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/kernels/optim"
)

var zzRows = flag.Int("zzrows", 3_200_000, "")
var zzDim = flag.Int("zzdim", 16, "")

func zzCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(1, &u) // RUSAGE_THREAD
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestZZ(t *testing.T) {
	n, dim := *zzRows, *zzDim
	tab, err := New(Config{Name: "zz", Dim: dim, Optimizer: optim.Adagrad{LearningRate: .01}, Initializer: Zeros{}, Capacity: n})
	if err != nil {
		t.Fatal(err)
	}
	idOf := func(i int) int64 { return int64(uint64(i) * 0x9e3779b97f4a7c15) }
	ids, v := make([]int64, 4096), make([]float32, 4096*dim)
	for at := 0; at < n; at += 4096 {
		k := min(4096, n-at)
		for i := range k {
			ids[i] = idOf(at + i)
		}
		if err := tab.Assign(ids[:k], v[:k*dim], 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	const batch, drawn = 2048, 256
	all := make([]int64, batch*drawn)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range all {
		all[i] = idOf(r.IntN(n))
	}
	grads := make([]float32, batch*dim)
	for i := range grads {
		grads[i] = 1e-3
	}
	out := make([]float32, batch*dim)
	runtime.LockOSThread()
	bench := func(name string, f func(ids []int64)) {
		best, wall := time.Hour, time.Hour
		for range 8 {
			c, w := zzCPU(), time.Now()
			for i := range drawn {
				f(all[i*batch:][:batch])
			}
			best, wall = min(best, zzCPU()-c), min(wall, time.Since(w))
		}
		t.Logf("%-12s cpu %6.2f wall %6.2f ns/row", name, float64(best)/drawn/batch, float64(wall)/drawn/batch)
	}
	bench("plan", func(ids []int64) {
		p := plans.Get().(*plan)
		p.build(tab.backend, ids, grads, dim)
		plans.Put(p)
	})
	bench("plan+check", func(ids []int64) {
		p := plans.Get().(*plan)
		p.build(tab.backend, ids, grads, dim)
		_ = tab.checkGradients(p, grads)
		plans.Put(p)
	})
	bench("plan+run", func(ids []int64) {
		p := plans.Get().(*plan)
		p.build(tab.backend, ids, grads, dim)
		pipe := tab.writerPipe()
		pipe.run(signed(p.hash), func(slots []slot, from int) {})
		pipe.done()
		plans.Put(p)
	})
	bench("plan+write", func(ids []int64) {
		p := plans.Get().(*plan)
		p.build(tab.backend, ids, grads, dim)
		_ = tab.write(p, true, func(slots []slot, from int) {})
		plans.Put(p)
	})
	bench("optimize", func(ids []int64) { _ = tab.Optimize(ids, grads, 2) })
	sec := uint32(2)
	bench("optimize sec", func(ids []int64) { sec++; _ = tab.Optimize(ids, grads, sec) })
	bench("lookup", func(ids []int64) { _, _ = tab.Lookup(ids, out, nil) })
}
