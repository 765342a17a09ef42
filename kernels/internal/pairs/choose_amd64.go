//go:build !purego

package pairs

import "github.com/monolith-go/monolith/kernels/internal/cpu"

var plain, avx512 = backend{name: "plain"}, backend{"avx512", forwardAVX512, backwardAVX512}

func fastest() backend {
	if cpu.Use() >= cpu.AVX512 {
		return avx512
	}
	return plain
}

//go:noescape
func forwardAVX512(emb, sums, y []float32, fields, dim int)

//go:noescape
func backwardAVX512(emb, sums, dy, demb []float32, fields, dim int)
