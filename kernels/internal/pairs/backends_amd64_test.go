//go:build !purego

package pairs

import "github.com/monolith-go/monolith/kernels/internal/cpu"

// backends are all that this processor runs.
func backends() []backend {
	if cpu.Has() >= cpu.AVX512 {
		return []backend{plain, avx512}
	}
	return []backend{plain}
}
