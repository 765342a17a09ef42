//go:build !purego

package dense

import "github.com/monolith-go/monolith/kernels/internal/cpu"

var plainFM, avx512FM = fmBackend{name: "plain"}, fmBackend{"avx512", pairsAVX512, pairsBackAVX512}

func fastestFM() fmBackend {
	if cpu.UseAVX512() {
		return avx512FM
	}
	return plainFM
}

// fmBackends are all that this processor runs.
func fmBackends() []fmBackend {
	if cpu.HasAVX512() {
		return []fmBackend{plainFM, avx512FM}
	}
	return []fmBackend{plainFM}
}

//go:noescape
func pairsAVX512(emb, sums, y []float32, fields, dim int)

//go:noescape
func pairsBackAVX512(emb, sums, dy, demb []float32, fields, dim int)
