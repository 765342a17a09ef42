//go:build !purego

package vec

import "github.com/monolith-go/monolith/kernels/internal/cpu"

var (
	avx2 = backend{
		name: "avx2",
		dot:  dotAVX2, axpy: axpyAVX2, axpy4: axpy4AVX2, add: addAVX2, maxBits: maxBitsAVX2,
		fromFP16: fromFP16AVX2, addFP16: addFP16AVX2, toFP16: toFP16AVX2,
		fromInt8: fromInt8AVX2, addInt8: addInt8AVX2,
		sgd: sgdAVX2, adagrad: adagradAVX2, adam: adamAVX2,
	}
	// avx512 has the dot and axpy of avx2, so that both round alike.
	avx512 = backend{
		name: "avx512",
		dot:  dotAVX2, axpy: axpyAVX2, axpy4: axpy4AVX2, add: addAVX512, maxBits: maxBitsAVX512,
		fromFP16: fromFP16AVX512, addFP16: addFP16AVX512, toFP16: toFP16AVX512,
		fromInt8: fromInt8AVX512, addInt8: addInt8AVX512,
		sgd: sgdAVX512, adagrad: adagradAVX512, adam: adamAVX512,
	}
)

func fastest() backend {
	switch {
	case cpu.Use() >= cpu.AVX512:
		return avx512
	case cpu.Use() >= cpu.AVX2:
		return avx2
	}
	return plain
}

// The AVX2 loops take blocks of 8; plain Go, which gives the same bits, takes the rest.

func addAVX2(x, y []float32) {
	n := len(x) &^ 7
	if n > 0 {
		addBlocksAVX2(x[:n], y[:n])
	}
	addGo(x[n:], y[n:])
}

func maxBitsAVX2(x []float32) (most uint32) {
	n := len(x) &^ 7
	if n > 0 {
		most = maxBitsBlocksAVX2(x[:n])
	}
	return max(most, maxBitsGo(x[n:]))
}

func fromFP16AVX2(dst []float32, src []uint16) {
	n := len(dst) &^ 7
	if n > 0 {
		fromFP16BlocksAVX2(dst[:n], src[:n])
	}
	fromFP16Go(dst[n:], src[n:])
}

func addFP16AVX2(dst []float32, src []uint16) {
	n := len(dst) &^ 7
	if n > 0 {
		addFP16BlocksAVX2(dst[:n], src[:n])
	}
	addFP16Go(dst[n:], src[n:])
}

func toFP16AVX2(dst []uint16, src []float32) {
	n := len(dst) &^ 7
	if n > 0 {
		toFP16BlocksAVX2(dst[:n], src[:n])
	}
	toFP16Go(dst[n:], src[n:])
}

func fromInt8AVX2(dst []float32, src []int8, scale float32) {
	n := len(dst) &^ 7
	if n > 0 {
		fromInt8BlocksAVX2(dst[:n], src[:n], scale)
	}
	fromInt8Go(dst[n:], src[n:], scale)
}

func addInt8AVX2(dst []float32, src []int8, scale float32) {
	n := len(dst) &^ 7
	if n > 0 {
		addInt8BlocksAVX2(dst[:n], src[:n], scale)
	}
	addInt8Go(dst[n:], src[n:], scale)
}

func sgdAVX2(w, g []float32, rate float32) {
	n := len(w) &^ 7
	if n > 0 {
		sgdBlocksAVX2(w[:n], g[:n], rate)
	}
	sgdGo(w[n:], g[n:], rate)
}

func adagradAVX2(w, n, g []float32, rate, decay float32) {
	k := len(w) &^ 7
	if k > 0 {
		adagradBlocksAVX2(w[:k], n[:k], g[:k], rate, decay)
	}
	adagradGo(w[k:], n[k:], g[k:], rate, decay)
}

func adamAVX2(w, m, v, g []float32, rate, c1, c2, epsilon, decay float32) {
	n := len(w) &^ 7
	if n > 0 {
		adamBlocksAVX2(w[:n], m[:n], v[:n], g[:n], rate, c1, c2, epsilon, decay)
	}
	adamGo(w[n:], m[n:], v[n:], g[n:], rate, c1, c2, epsilon, decay)
}

//go:noescape
func dotAVX2(a, b []float32) float32

//go:noescape
func axpyAVX2(alpha float32, x, y []float32)

//go:noescape
func axpy4AVX2(a0, a1, a2, a3 float32, x0, x1, x2, x3, y []float32)

//go:noescape
func addBlocksAVX2(x, y []float32)

//go:noescape
func maxBitsBlocksAVX2(x []float32) uint32

//go:noescape
func fromFP16BlocksAVX2(dst []float32, src []uint16)

//go:noescape
func addFP16BlocksAVX2(dst []float32, src []uint16)

//go:noescape
func toFP16BlocksAVX2(dst []uint16, src []float32)

//go:noescape
func fromInt8BlocksAVX2(dst []float32, src []int8, scale float32)

//go:noescape
func addInt8BlocksAVX2(dst []float32, src []int8, scale float32)

//go:noescape
func sgdBlocksAVX2(w, g []float32, rate float32)

//go:noescape
func adagradBlocksAVX2(w, n, g []float32, rate, decay float32)

//go:noescape
func adamBlocksAVX2(w, m, v, g []float32, rate, c1, c2, epsilon, decay float32)

//go:noescape
func addAVX512(x, y []float32)

//go:noescape
func maxBitsAVX512(x []float32) uint32

//go:noescape
func fromFP16AVX512(dst []float32, src []uint16)

//go:noescape
func addFP16AVX512(dst []float32, src []uint16)

//go:noescape
func toFP16AVX512(dst []uint16, src []float32)

//go:noescape
func fromInt8AVX512(dst []float32, src []int8, scale float32)

//go:noescape
func addInt8AVX512(dst []float32, src []int8, scale float32)

//go:noescape
func sgdAVX512(w, g []float32, rate float32)

//go:noescape
func adagradAVX512(w, n, g []float32, rate, decay float32)

//go:noescape
func adamAVX512(w, m, v, g []float32, rate, c1, c2, epsilon, decay float32)
