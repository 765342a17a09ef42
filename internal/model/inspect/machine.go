package inspect

import (
	"runtime"
	"sync"
	"time"

	"github.com/monolith-go/monolith/kernels/gemm"
)

// Measure finds for about 2 d what this machine's processors can do together.
func Measure(d time.Duration) Machine {
	threads := runtime.GOMAXPROCS(0)
	return Machine{GFLOPs: gemm.Ceiling(threads, d), GBs: bandwidth(threads, d) / 1e9}
}

// bandwidth is the bytes a second, read and written, that copies of more than any cache come to.
func bandwidth(threads int, d time.Duration) float64 {
	size := max(32<<20/threads, 1<<20) // floats of each thread: 128 MiB together, and as much to copy to
	copied := make([]int, threads)
	var all sync.WaitGroup
	var begun, ready sync.WaitGroup
	begun.Add(1)
	ready.Add(threads)
	for i := range threads {
		all.Go(func() {
			from, to := make([]float32, size), make([]float32, size)
			copy(to, from) // pages come with the first use
			ready.Done()
			begun.Wait()
			for start := time.Now(); time.Since(start) < d; copied[i]++ {
				copy(to, from)
			}
		})
	}
	ready.Wait()
	start := time.Now()
	begun.Done()
	all.Wait()
	sum := 0
	for _, n := range copied {
		sum += n
	}
	return float64(sum) * 2 * 4 * float64(size) / time.Since(start).Seconds()
}
