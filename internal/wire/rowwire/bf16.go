package rowwire

import (
	"math"

	"github.com/monolith-go/monolith/kernels/vec"
)

// bf16s writes v rounded to nearest even, as products of bfloat16 round their factors; a NaN stays one.
func (e *encoder) bf16s(v []float32) {
	b := e.grow(2 * len(v))
	if b == nil {
		return
	}
	for ; len(v) > block; v, b = v[block:], b[2*block:] {
		roundBF16(b[:2*block], v[:block])
	}
	roundBF16(b, v)
}

// roundBF16 writes a block to 2*len(v) bytes.
func roundBF16(b []byte, v []float32) {
	if most := vec.MaxAbs(v); most != most {
		for i, x := range v {
			le.PutUint16(b[2*i:], toBF16(x))
		}
		return
	}
	b = b[:2*len(v)]
	for ; len(v) >= 4; v, b = v[4:], b[8:] {
		b0, b1 := uint64(math.Float32bits(v[0])), uint64(math.Float32bits(v[1]))
		b2, b3 := uint64(math.Float32bits(v[2])), uint64(math.Float32bits(v[3]))
		le.PutUint64(b, (b0+0x7fff+b0>>16&1)>>16|(b1+0x7fff+b1>>16&1)&^0xffff|(b2+0x7fff+b2>>16&1)>>16<<32|(b3+0x7fff+b3>>16&1)>>16<<48)
	}
	for i, x := range v {
		le.PutUint16(b[2*i:], toBF16(x))
	}
}

func toBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		if b&0xffff != 0 {
			return uint16(b>>16) | 0x40 // what is left of its bits may say infinity
		}
		return uint16(b >> 16)
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// bf16s reads n numbers, into the memory of dst where that suffices.
func (d *decoder) bf16s(dst []float32, n int) []float32 {
	b := d.take(2 * n)
	if b == nil {
		return dst[:0]
	}
	dst = reuse(dst[:cap(dst)], n)
	v := dst
	for ; len(v) >= 4; v, b = v[4:], b[8:] {
		x := le.Uint64(b)
		v[0], v[1] = math.Float32frombits(uint32(x)<<16), math.Float32frombits(uint32(x)&^0xffff)
		v[2], v[3] = math.Float32frombits(uint32(x>>32)<<16), math.Float32frombits(uint32(x>>32)&^0xffff)
	}
	for i := range v {
		v[i] = math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16)
	}
	return dst
}
