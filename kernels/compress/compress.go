// Package compress turns vectors of float32 into fewer bytes and back, as serving rows
// keep them, and shows training what quantization will do to a row.
//
// The formats are those of the original: little-endian, no header, so a row's length
// follows from its dim.
package compress

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/monolith-go/monolith/kernels/vec"
)

// Compressor is one format. Lengths that do not fit together panic. It is safe for
// concurrent use.
type Compressor interface {
	// Name is "fp32", "fp16", "fixed_r8" or "one_bit".
	Name() string
	// Size is the number of bytes of a vector of dim numbers.
	Size(dim int) int
	// Encode writes values to dst, Size(len(values)) long.
	Encode(dst []byte, values []float32)
	// Decode reads src, Size(len(dst)) long.
	Decode(dst []float32, src []byte)
	// Add adds to dst what Decode would give: a pooled lookup without a copy.
	Add(dst []float32, src []byte)
}

// Aware is a Compressor that training takes into account: a lookup returns what a
// serving row would say, while the row itself keeps its full precision.
type Aware interface {
	Compressor
	// Look sets dst to what training sees of values at a global step. They may be the
	// same slice.
	Look(dst, values []float32, step int64)
	// Grade turns the gradient g of what Look returned into that of values, in place.
	Grade(g, values []float32, step int64)
}

// FP32 keeps every bit: 4 bytes a number.
type FP32 struct{}

// Name is "fp32".
func (FP32) Name() string { return "fp32" }

// Size is 4*dim.
func (FP32) Size(dim int) int { return 4 * dim }

// Encode copies.
func (c FP32) Encode(dst []byte, values []float32) {
	check(c, len(dst), len(values))
	if !cpu.IsBigEndian {
		copy(dst, bytesOf(values))
		return
	}
	for i, x := range values {
		b := math.Float32bits(x)
		dst[4*i], dst[4*i+1], dst[4*i+2], dst[4*i+3] = byte(b), byte(b>>8), byte(b>>16), byte(b>>24)
	}
}

// Decode copies.
func (c FP32) Decode(dst []float32, src []byte) {
	check(c, len(src), len(dst))
	if !cpu.IsBigEndian {
		copy(bytesOf(dst), src)
		return
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(src[4*i]) | uint32(src[4*i+1])<<8 | uint32(src[4*i+2])<<16 | uint32(src[4*i+3])<<24)
	}
}

// Add is the sum of two float32.
func (c FP32) Add(dst []float32, src []byte) {
	check(c, len(src), len(dst))
	if len(dst) == 0 {
		return
	}
	if !cpu.IsBigEndian {
		vec.Add(unsafe.Slice((*float32)(unsafe.Pointer(&src[0])), len(dst)), dst)
		return
	}
	blocks(c, dst, src)
}

// FP16 keeps IEEE 754 halves: 2 bytes a number, 11 significant bits, the relative error
// at most 2^-11 between 2^-14 and 65504 and the absolute one 2^-25 below. From 65520 on
// a number becomes infinite; NaN stays NaN.
type FP16 struct{}

// Name is "fp16".
func (FP16) Name() string { return "fp16" }

// Size is 2*dim.
func (FP16) Size(dim int) int { return 2 * dim }

// Encode rounds to the nearest half, ties to even.
func (c FP16) Encode(dst []byte, values []float32) {
	check(c, len(dst), len(values))
	if !cpu.IsBigEndian {
		vec.ToFP16(halves(dst), values)
		return
	}
	var h [1]uint16
	for i := range values {
		vec.ToFP16(h[:], values[i:i+1])
		dst[2*i], dst[2*i+1] = byte(h[0]), byte(h[0]>>8)
	}
}

// Decode is exact.
func (c FP16) Decode(dst []float32, src []byte) {
	check(c, len(src), len(dst))
	if !cpu.IsBigEndian {
		vec.FromFP16(dst, halves(src))
		return
	}
	for i := range dst {
		vec.FromFP16(dst[i:i+1], []uint16{uint16(src[2*i]) | uint16(src[2*i+1])<<8})
	}
}

// Add adds the decoded numbers.
func (c FP16) Add(dst []float32, src []byte) {
	check(c, len(src), len(dst))
	if !cpu.IsBigEndian {
		vec.AddFP16(dst, halves(src))
		return
	}
	blocks(c, dst, src)
}

// blocks adds what c decodes, a little at a time.
func blocks(c Compressor, dst []float32, src []byte) {
	var b [64]float32
	for len(dst) > 0 {
		n := min(len(dst), len(b))
		c.Decode(b[:n], src[:c.Size(n)])
		vec.Add(b[:n], dst[:n])
		dst, src = dst[n:], src[c.Size(n):]
	}
}

// bytesOf and the two below see the same memory as another type. Nothing wider than a
// vector load without alignment ever touches it.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func halves(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}

func signed(b []byte) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(b))), len(b))
}

func check(c Compressor, bytes, dim int) {
	if bytes != c.Size(dim) {
		panic(fmt.Sprintf("compress: %s of %d numbers is %d bytes, not %d", c.Name(), dim, c.Size(dim), bytes))
	}
}

func finite(x float32) bool { return x-x == 0 }
