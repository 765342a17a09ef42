//go:build !purego

package gemm

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/internal/cpu"
)

//go:noescape
func tileAVX512(t *tile)

//go:noescape
func tileBF16(t *tile)

//go:noescape
func copyAVX512(p *panel)

//go:noescape
func copyBF16(p *panel)

//go:noescape
func transposeAVX512(p *panel)

//go:noescape
func roundBF16(dst *uint16, src *float32, n int)

// level pairs the backends that a processor of that level uses.
type level struct {
	needs cpu.Level
	pair  [2]*backend
}

var (
	avx2      = &backend{name: "avx2", mr: 12, tile: tileAVX2Go, copy: copyGo, transpose: transposeGo}
	avx2Round = &backend{name: "avx2+round", mr: 12, rounds: true, tile: tileAVX2Go, copy: copyRoundGo, transpose: transposeRoundGo}
	avx512    = &backend{name: "avx512", mr: 14, masked: true, tile: tileAVX512, copy: copyAVX512, transpose: transposeAVX512}
	avx512Rnd = &backend{name: "avx512+round", mr: 14, masked: true, rounds: true, tile: tileAVX512, copy: copyRoundGo, transpose: transposeRoundGo}
	bf16      = &backend{name: "avx512bf16", mr: 14, masked: true, rounds: true, pairs: true, tile: tileBF16, copy: copyBF16, transpose: transposeAVX512, round: roundBF16}
)

var levels = []level{
	{cpu.Plain, [2]*backend{plain, plainRound}},
	{cpu.AVX2, [2]*backend{avx2, avx2Round}},
	{cpu.AVX512, [2]*backend{avx512, avx512Rnd}},
	{cpu.AVX512BF16, [2]*backend{avx512, bf16}},
	{cpu.AMX, [2]*backend{avx512, amxBF16}},
}

// fastest asks for AMX's tiles only if they would be used, and uses them only if they
// multiply: no product of a later day shall be the first.
func fastest() ([2]*backend, error) {
	l := cpu.Use()
	if l < cpu.AMX {
		return runnable(l), nil
	}
	err := lendTiles()
	if err == nil {
		err = proven(runnable(cpu.AMX))
	}
	if err != nil {
		return runnable(cpu.AVX512BF16), fmt.Errorf("gemm: amxbf16 is not used: %w", err)
	}
	return runnable(cpu.AMX), nil
}

// runnable is the best pair for a level.
func runnable(l cpu.Level) (pair [2]*backend) {
	for _, have := range levels {
		if have.needs <= l {
			pair = have.pair
		}
	}
	return pair
}

//go:noescape
func spinAVX512(n int)

//go:noescape
func spinBF16(n int)

//go:noescape
func spinAVX2(n int)

func spins() [2]spin {
	var s [2]spin
	for i, be := range chosen {
		switch be.name {
		case "amxbf16":
			s[i] = spin{spinAMX, 4 * 2 * 16 * 16 * 32}
		case "avx512bf16":
			s[i] = spin{spinBF16, 16 * 64}
		case "avx512", "avx512+round":
			s[i] = spin{spinAVX512, 16 * 32}
		case "avx2", "avx2+round":
			s[i] = spin{spinAVX2, 12 * 16}
		default:
			s[i] = spin{spinGo, 16}
		}
	}
	return s
}
