// Package cpu tells kernels which instructions they may use.
//
// Has says what processor and system run, Use what a kernel shall choose: the same,
// unless the environment holds it back. Levels are nested, so a kernel without a backend
// for one takes the next lower.
package cpu

import (
	"os"

	"golang.org/x/sys/cpu"
)

// Kernels is the environment variable that names the highest level to be used: "plain",
// "avx2", "avx512", "avx512bf16" or "amx". Unset or empty is the processor's own. Any other
// word counts as plain, so that a misspelling makes a process slow and never wrong. It is
// read when the process starts.
const Kernels = "MONOLITH_KERNELS"

// NoAVX2 is the older switch: set to anything it means plain.
const NoAVX2 = "MONOLITH_NO_AVX2"

// Level is a set of instructions that contains those of all lower levels.
type Level int

// The levels.
const (
	Plain      Level = iota // plain Go
	AVX2                    // with FMA and F16C
	AVX512                  // F, BW, CD, DQ and VL
	AVX512BF16              // VDPBF16PS and the conversions
	AMX                     // tiles with bf16 products
)

var names = [...]string{"plain", "avx2", "avx512", "avx512bf16", "amx"}

// String is the word for the level in MONOLITH_KERNELS.
func (l Level) String() string { return names[l] }

// Has is the highest level of this processor and system.
func Has() Level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasF16C:
		return Plain
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512CD || !x.HasAVX512DQ || !x.HasAVX512VL:
		return AVX2
	case !x.HasAVX512BF16:
		return AVX512
	case !x.HasAMXTile || !x.HasAMXBF16:
		return AVX512BF16
	}
	return AMX
}

// Use is Has, held back by the environment.
func Use() Level { return min(Has(), allowed(os.Getenv(Kernels), os.Getenv(NoAVX2))) }

func allowed(kernels, noAVX2 string) Level {
	if noAVX2 != "" {
		return Plain
	}
	if kernels == "" {
		return AMX
	}
	for l := Plain; l <= AMX; l++ {
		if l.String() == kernels {
			return l
		}
	}
	return Plain
}
