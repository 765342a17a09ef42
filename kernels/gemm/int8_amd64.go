//go:build !purego

package gemm

import (
	"unsafe"

	"github.com/monolith-go/monolith/kernels/internal/cpu"
)

//go:noescape
func block8AVX2(t *block8)

// quantise16AVX2 is quantise of a multiple of 16 floats.
//
//go:noescape
func quantise16AVX2(dst, src *float32, n int, inv float32)

// avx2int8 multiplies pairs of int16 and adds them to int32 by VPMADDWD, twice what AVX2 multiplies in float32. VPDPBUSD
// of AVX512_VNNI would be twice that again, and is not written: nothing of it could be run where this was.
var avx2int8 = &backend8{name: "avx2", block: block8AVX2, quantise: quantiseAVX2}

func quantiseAVX2(dst, src *float32, n int, inv float32) {
	whole := n &^ 15
	if whole > 0 {
		quantise16AVX2(dst, src, whole, inv)
	}
	if whole < n {
		quantise8Go((*float32)(unsafe.Add(unsafe.Pointer(dst), 2*whole)), &floats(src, uintptr(whole)*4, 1)[0], n-whole, inv)
	}
}

//go:noescape
func spinInt8AVX2(n int)

func spin8() spin {
	if chosen8 == avx2int8 {
		return spin{spinInt8AVX2, 12 * 32}
	}
	return spin{spinGo, 16}
}

func fastest8() *backend8 {
	if cpu.Use() >= cpu.AVX2 {
		return avx2int8
	}
	return plain8
}
