package gemm

import (
	"sync"
	"time"

	"github.com/monolith-go/monolith/kernels/par"
)

// spin is the densest loop of multiply-adds on registers that a backend knows; flops is
// what a turn counts.
type spin struct {
	loop  func(n int)
	flops float64
}

// Ceiling measures for about d what this processor's multiply-adders give threads
// goroutines, in GFLOP/s, with the instructions of the chosen backend on registers alone
// (two operations per multiply-add). No product can be faster. A d below 20 ms says little.
func Ceiling(threads int, d time.Duration) float64 { return ceiling(spins()[0], threads, d) }

// CeilingBF16 is Ceiling for products with Op.BF16. Where the backend only rounds, it is
// the same.
func CeilingBF16(threads int, d time.Duration) float64 { return ceiling(spins()[1], threads, d) }

// CeilingInt8 is Ceiling for products in int8.
func CeilingInt8(threads int, d time.Duration) float64 { return ceiling(spin8(), threads, d) }

func ceiling(s spin, threads int, d time.Duration) float64 {
	threads = min(max(threads, 1), par.MaxThreads)
	rates := make([]float64, threads)
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			n := int(1e8 / s.flops)
			s.loop(n) // the clock rises
			turns := 0
			start := time.Now()
			for time.Since(start) < d {
				s.loop(n)
				turns += n
			}
			rates[i] = float64(turns) * s.flops / time.Since(start).Seconds() / 1e9
		})
	}
	wg.Wait()
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum
}

// spinGo is the plain ceiling: 8 independent chains.
func spinGo(n int) {
	var a, b, c, d, e, f, g, h float32
	x := sink
	for range n {
		a += float32(x * a)
		b += float32(x * b)
		c += float32(x * c)
		d += float32(x * d)
		e += float32(x * e)
		f += float32(x * f)
		g += float32(x * g)
		h += float32(x * h)
	}
	if a+b+c+d+e+f+g+h != 0 {
		panic("gemm: sums of zeros are zero")
	}
}

// sink is a factor that the compiler does not know.
var sink float32
