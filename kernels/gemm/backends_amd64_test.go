//go:build !purego

package gemm

import (
	"testing"

	"github.com/monolith-go/monolith/kernels/internal/cpu"
)

// pairs are all that this processor runs, chosen or not. Where there is no AMX, a model of
// its instructions stands in.
func pairs() (all [][2]*backend) {
	has := cpu.Has()
	if has == cpu.AMX && lendTiles() != nil {
		has = cpu.AVX512BF16
	}
	for _, l := range levels {
		if l.needs <= has {
			all = append(all, l.pair)
		}
	}
	if has == cpu.AVX512BF16 {
		all = append(all, [2]*backend{avx512, modelAMX})
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
		cpu.AMX:        {"avx512", "amxbf16"},
	}[cpu.Use()]
	if cpu.Use() == cpu.AMX {
		if err := lendTiles(); err != nil {
			t.Logf("this processor has AMX, this system does not give it: %v", err)
			if want[1] = "avx512bf16"; Refused() == nil {
				t.Error("and nobody is told why")
			}
		} else if Refused() != nil {
			t.Error(Refused())
		}
	} else if Refused() != nil {
		t.Errorf("%v is refused where it was not asked for", Refused())
	}
	if !ok || want != [2]string{f, b} {
		t.Errorf("%s and %s are in use on %v, want %v", f, b, cpu.Use(), want)
	}
	if cpu.Use() < cpu.Has() {
		t.Logf("held back to %v by the environment; this processor has %v", cpu.Use(), cpu.Has())
	}
}

// backends8 are those for int8 that this processor runs.
func backends8() []*backend8 {
	if cpu.Has() < cpu.AVX2 {
		return []*backend8{plain8}
	}
	return []*backend8{plain8, avx2int8}
}

func TestTheFastestInt8IsChosen(t *testing.T) {
	want := "plain"
	if cpu.Use() >= cpu.AVX2 {
		want = "avx2"
	}
	if got := BackendInt8(); got != want {
		t.Errorf("%s is in use on %v, want %s", got, cpu.Use(), want)
	}
}
