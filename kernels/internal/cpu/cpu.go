// Package cpu tells kernels which instructions they may use.
package cpu

import (
	"os"

	"golang.org/x/sys/cpu"
)

// NoAVX2 is the environment variable that, set to anything, makes kernels do without
// AVX2: to compare backends, or to get the same bits as a machine that lacks it.
const NoAVX2 = "MONOLITH_NO_AVX2"

// HasAVX2 says whether this processor and system run AVX2 and FMA.
func HasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA }

// UseAVX2 is HasAVX2 unless switched off.
func UseAVX2() bool { return HasAVX2() && os.Getenv(NoAVX2) == "" }
