//go:build !purego

package gemm

import (
	"testing"

	"github.com/monolith-go/monolith/kernels/internal/cpu"
)

// pairs are all that this processor runs, chosen or not.
func pairs() (all [][2]*backend) {
	for _, l := range levels {
		if l.needs <= cpu.Has() {
			all = append(all, l.pair)
		}
	}
	return all
}

// A processor that quietly runs a slower backend than it could is a fault of the build.
func TestTheFastestIsChosen(t *testing.T) {
	f, b := Backends()
	want, ok := map[cpu.Level][2]string{
		cpu.Plain:      {"plain", "plain+round"},
		cpu.AVX2:       {"avx2", "avx2+round"},
		cpu.AVX512:     {"avx512", "avx512+round"},
		cpu.AVX512BF16: {"avx512", "avx512bf16"},
		cpu.AMX:        {"avx512", "avx512bf16"},
	}[cpu.Use()]
	if !ok || want != [2]string{f, b} {
		t.Errorf("%s and %s are in use on %v, want %v", f, b, cpu.Use(), want)
	}
	if cpu.Use() < cpu.Has() {
		t.Logf("held back to %v by the environment; this processor has %v", cpu.Use(), cpu.Has())
	}
}
