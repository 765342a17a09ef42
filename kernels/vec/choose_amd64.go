//go:build !purego

package vec

import "github.com/monolith-go/monolith/kernels/internal/cpu"

var avx2 = func() backend {
	b := plain
	b.name, b.dot, b.axpy, b.axpy4 = "avx2", dotAVX2, axpyAVX2, axpy4AVX2
	return b
}()

func fastest() backend {
	if cpu.UseAVX2() {
		return avx2
	}
	return plain
}

// backends are all that this processor runs, chosen or not.
func backends() []backend {
	if cpu.HasAVX2() {
		return []backend{plain, avx2}
	}
	return []backend{plain}
}

//go:noescape
func dotAVX2(a, b []float32) float32

//go:noescape
func axpyAVX2(alpha float32, x, y []float32)

//go:noescape
func axpy4AVX2(a0, a1, a2, a3 float32, x0, x1, x2, x3, y []float32)
