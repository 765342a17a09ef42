package inspect

import (
	"runtime"
	"sync"
	"time"

	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/table"
)

// Kernels are the implementations of the kernels that this processor got, and why a faster one was refused.
type Kernels struct {
	Float32  string `json:"float32"`  // of matrix products: plain, avx2, avx512
	BFloat16 string `json:"bfloat16"` // of those of bfloat16: also avx512bf16, amxbf16; "+round" multiplies rounded factors in float32
	Int8     string `json:"int8"`     // of those of int8, in serving: plain, avx2
	Tables   string `json:"tables"`   // of look-ups and updates of rows
	Refused  string `json:"refused,omitempty"`
}

// Backends says which kernels run here.
func Backends() *Kernels {
	k := &Kernels{Int8: gemm.BackendInt8(), Tables: table.Backend()}
	k.Float32, k.BFloat16 = gemm.Backends()
	if err := gemm.Refused(); err != nil {
		k.Refused = err.Error()
	}
	return k
}

// Measure finds for about 4 d what this machine's processors can do together.
func Measure(d time.Duration) Machine {
	threads := runtime.GOMAXPROCS(0)
	m := Machine{GFLOPs: gemm.Ceiling(threads, d), BF16: gemm.CeilingBF16(threads, d), INT8: gemm.CeilingInt8(threads, d), GBs: bandwidth(threads, d) / 1e9}
	m.Kernels = Backends()
	return m
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

// Or is on with what it lacks from what was found.
func (on Machine) Or(found Machine) Machine {
	if on.GFLOPs > 0 {
		found.GFLOPs, found.BF16, found.INT8 = on.GFLOPs, 0, 0
	}
	if on.GBs > 0 {
		found.GBs = on.GBs
	}
	return found
}
