package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// maxAbsRef is MaxAbs by comparing numbers: the second opinion on comparing bits.
func maxAbsRef(x []float32) float64 {
	var most float64
	for _, v := range x {
		most = max(most, math.Abs(float64(v))) // NaN stays
	}
	return most
}

func TestMaxAbs(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, tc := range []struct {
		x    []float32
		want float64
	}{
		{nil, 0}, {[]float32{0}, 0}, {[]float32{1, -3, 2}, 3}, {[]float32{-1, 3, 2}, 3}, {[]float32{1, inf}, math.Inf(1)},
		{[]float32{float32(math.Copysign(0, -1))}, 0}, {[]float32{-1e-45, 0}, float64(float32(1e-45))},
	} {
		if got := float64(MaxAbs(tc.x)); got != tc.want || math.Signbit(got) {
			t.Errorf("MaxAbs(%v) = %g, want %g", tc.x, got, tc.want)
		}
	}
	for _, x := range [][]float32{{nan}, {1, nan}, {nan, 1}, {1, nan, 5}, {inf, nan}, {nan, inf}} {
		if got := MaxAbs(x); got == got {
			t.Errorf("MaxAbs(%v) = %g", x, got)
		}
	}
}

// Wherever the greatest one stands, in a block or in what is left of it, it is found.
func TestMaxAbsFindsEachPlace(t *testing.T) {
	for _, be := range backends() {
		for n := range 200 {
			x := make([]float32, n+1)
			for i := range x {
				for _, v := range []float32{-3, float32(math.NaN()), float32(math.Inf(-1))} {
					x[i] = v
					if got := be.maxBits(x); got != math.Float32bits(v)&^(1<<31) {
						t.Fatalf("%s: %g at %d of %d: %#x", be.name, v, i, len(x), got)
					}
				}
				x[i] = 2
			}
		}
	}
}

func FuzzMaxAbs(f *testing.F) {
	for n := range uint16(140) {
		f.Add(uint64(n), n, uint8(n), n%2 == 0) // every tail around 8, 16, 32 and 64 lanes
	}
	f.Fuzz(func(t *testing.T, seed uint64, size uint16, shift uint8, wild bool) {
		n := int(size % 1500)
		r := rand.New(rand.NewPCG(seed, 2))
		a := floats(r, n, int(shift%17), wild)
		if n == 0 {
			return
		}
		want := maxAbsRef(a.use)
		bits := plain.maxBits(a.use)
		if got := float64(math.Float32frombits(bits)); got != want && want == want || (got == got) != (want == want) {
			t.Fatalf("plain: n=%d: %g, want %g", n, got, want)
		}
		for i := range a.all { // what lies around the slice is NaN: nobody may take it along
			if i < a.from || i >= a.from+4*n {
				a.all[i] = 0xff
			}
		}
		for _, be := range backends()[1:] {
			if got := be.maxBits(a.use); got != bits {
				t.Errorf("%s: n=%d shift=%d: %#x, plain Go says %#x", be.name, n, shift, got, bits)
			}
		}
	})
}

// 697,665 are the weights of a DeepFM of 26 features of 16.
func BenchmarkMaxAbs(b *testing.B) {
	for _, n := range []int{64, 697_665} {
		x := floats(rand.New(rand.NewPCG(1, 1)), n, 0, false).use
		for _, be := range backends() {
			b.Run(be.name+"/"+map[bool]string{true: "row", false: "variables"}[n == 64], func(b *testing.B) {
				b.SetBytes(int64(4 * n))
				for b.Loop() {
					be.maxBits(x)
				}
			})
		}
	}
}
