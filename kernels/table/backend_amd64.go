//go:build !purego

package table

import "github.com/monolith-go/monolith/kernels/internal/cpu"

func level(l cpu.Level) backend {
	switch {
	case l >= cpu.AVX512:
		return avx512
	case l >= cpu.AVX2:
		return avx2
	}
	return plain
}

// chosen is the fastest backend that this processor runs and nobody switched off.
var chosen = level(cpu.Use())
