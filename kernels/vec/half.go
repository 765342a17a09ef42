package vec

import "math"

// FromFP16 sets dst[i] to the number whose IEEE 754 half is src[i], which is exact. A
// NaN stays one, quiet, with its payload.
func FromFP16(dst []float32, src []uint16) {
	n := min(len(dst), len(src))
	if n == 0 {
		return
	}
	chosen.fromFP16(dst[:n], src[:n])
}

// AddFP16 adds the number whose half is src[i] to dst[i].
func AddFP16(dst []float32, src []uint16) {
	n := min(len(dst), len(src))
	if n == 0 {
		return
	}
	chosen.addFP16(dst[:n], src[:n])
}

// ToFP16 sets dst[i] to the half nearest to src[i], ties to even. From 65520 on that is
// infinity; a NaN stays one, quiet, with the upper ten bits of its payload.
func ToFP16(dst []uint16, src []float32) {
	n := min(len(dst), len(src))
	if n == 0 {
		return
	}
	chosen.toFP16(dst[:n], src[:n])
}

func fromFP16Go(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i, h := range src {
		dst[i] = wide(h)
	}
}

func addFP16Go(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i, h := range src {
		dst[i] += wide(h)
	}
}

func toFP16Go(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = half(x)
	}
}

// wide is the float32 of a half.
func wide(h uint16) float32 {
	sign, e, m := uint32(h&0x8000)<<16, h>>10&31, uint32(h&0x3ff)
	switch {
	case e == 31 && m != 0:
		return math.Float32frombits(sign | 0x7fc00000 | m<<13)
	case e == 31:
		return math.Float32frombits(sign | 0x7f800000)
	case e == 0: // m * 2^-24
		return math.Float32frombits(math.Float32bits(float32(m)*0x1p-24) | sign)
	}
	return math.Float32frombits(sign | uint32(e+112)<<23 | m<<13)
}

// half is the nearest half of a float32.
func half(x float32) uint16 {
	b := math.Float32bits(x)
	sign, abs := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00 | uint16(abs>>13&0x3ff)
	case abs >= 0x477ff000: // 65520
		return sign | 0x7c00
	case abs < 0x38800000: // 2^-14: the half is subnormal, a multiple of 2^-24
		// 0.5 has steps of 2^-24, so adding it rounds to them.
		return sign | uint16(math.Float32bits(math.Float32frombits(abs)+0.5)-0x3f000000)
	}
	abs += 0xfff + abs>>13&1
	return sign | uint16(abs>>13-112<<10)
}
