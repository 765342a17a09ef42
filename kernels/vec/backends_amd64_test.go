//go:build !purego

package vec

import "github.com/monolith-go/monolith/kernels/internal/cpu"

// backends are all that this processor runs, chosen or not, the fastest last.
func backends() []backend {
	switch {
	case cpu.Has() >= cpu.AVX512:
		return []backend{plain, avx2, avx512}
	case cpu.Has() >= cpu.AVX2:
		return []backend{plain, avx2}
	}
	return []backend{plain}
}
