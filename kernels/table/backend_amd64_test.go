//go:build !purego

package table

import (
	"testing"

	"github.com/monolith-go/monolith/kernels/internal/cpu"
)

// Each level of instructions has the fastest backend that it suffices for.
func TestLevels(t *testing.T) {
	for l, want := range map[cpu.Level]backend{cpu.Plain: plain, cpu.AVX2: avx2, cpu.AVX512: avx512, cpu.AVX512BF16: avx512, cpu.AMX: avx512} {
		if got := level(l); got != want {
			t.Errorf("%v runs backend %d, want %d", l, got, want)
		}
	}
}
