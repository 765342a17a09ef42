package cpu

import "testing"

func TestAllowed(t *testing.T) {
	for _, tc := range []struct {
		kernels, noAVX2 string
		want            Level
	}{
		{"", "", AMX},
		{"plain", "", Plain},
		{"avx2", "", AVX2},
		{"avx512", "", AVX512},
		{"avx512bf16", "", AVX512BF16},
		{"amx", "", AMX},
		{"AVX512", "", Plain}, // words are exact; a misspelt one is slow and safe
		{"avx512", "1", Plain},
		{"", "yes", Plain},
	} {
		if got := allowed(tc.kernels, tc.noAVX2); got != tc.want {
			t.Errorf("%q, %q: %v, want %v", tc.kernels, tc.noAVX2, got, tc.want)
		}
	}
}

func TestTheEnvironmentHoldsBack(t *testing.T) {
	for l := Plain; l <= AMX; l++ {
		t.Setenv(Kernels, l.String())
		t.Setenv(NoAVX2, "")
		if got := Use(); got != min(l, Has()) {
			t.Errorf("%s=%v: %v is used, the processor has %v", Kernels, l, got, Has())
		}
	}
}
