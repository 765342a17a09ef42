package layout

import "math/bits"

// A feature id carries its slot in the high bits. Version 1: 10 bits of slot and 54 of
// signature. Version 2: bit 63 is 0, then 15 bits of slot and 48 of signature. Only
// version 2 is sharded and stored.
const (
	sigBitsV1 = 54
	sigBitsV2 = 48
	sigMaskV1 = 1<<sigBitsV1 - 1
	sigMaskV2 = 1<<sigBitsV2 - 1

	// MaxSlotV1 and MaxSlotV2 are the greatest slots of the two forms.
	MaxSlotV1 = 1<<(64-sigBitsV1) - 1
	MaxSlotV2 = 1<<(63-sigBitsV2) - 1
)

// SlotV1 returns the slot of a version 1 id.
func SlotV1(fid uint64) uint32 { return uint32(fid >> sigBitsV1) }

// V2FromV1 keeps the slot and the low 48 bits of the signature; the upper 6 are lost.
func V2FromV1(fid uint64) uint64 {
	return fid&sigMaskV2 | fid>>sigBitsV1<<sigBitsV2
}

// modulus divides by a number that is known beforehand, without a division.
type modulus struct{ n, inv uint64 }

func newModulus(n uint64) modulus { return modulus{n, ^uint64(0) / n} }

// of returns x mod n, both unsigned. The estimated quotient is right or one too small.
func (m modulus) of(x uint64) uint64 {
	hi, _ := bits.Mul64(x, m.inv)
	r := x - hi*m.n
	if r >= m.n {
		r -= m.n
	}
	return r
}
