package pairs

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/kernels/internal/cpu"
)

func FuzzPairs(f *testing.F) {
	for i := range uint8(12) {
		f.Add(uint64(i), i+1, 16*(i%4+1), i, i)
	}
	f.Add(uint64(1), uint8(26), uint8(16), uint8(64), uint8(3))
	f.Add(uint64(2), uint8(3), uint8(7), uint8(5), uint8(1))
	f.Fuzz(func(t *testing.T, seed uint64, fields, dim, batch, shift uint8) {
		nf, d, n := int(fields)%40+1, int(dim)%80+1, int(batch)%20
		r := rand.New(rand.NewPCG(seed, 1))
		draw := func(n int) []float32 {
			v := make([]float32, n+int(shift%16)+3)
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
			return v[shift%16 : int(shift%16)+n]
		}
		emb, y, g, demb := draw(n*nf*d), draw(n), draw(n), draw(n*nf*d)
		old := chosen
		defer func() { chosen = old }()
		for _, chosen = range backends() {
			sums, got, dgot := draw(n*d), slices.Clone(y), slices.Clone(demb)
			Forward(emb, sums, got, nf, d)
			Backward(emb, sums, g, dgot, nf, d)
			for b := range n {
				want, size := float64(y[b]), math.Abs(float64(y[b]))
				for i := range d {
					sum, abs := 0.0, 0.0
					at := func(f int) float64 { return float64(emb[(b*nf+f)*d+i]) }
					for f := range nf {
						for f2 := range f { // every pair, as the definition has it
							want += at(f) * at(f2)
						}
						sum += at(f)
						abs += math.Abs(at(f))
					}
					size += abs * abs
					for f := range nf {
						at := (b*nf+f)*d + i
						want := float64(demb[at]) + float64(g[b])*(sum-float64(emb[at]))
						if tol := (math.Abs(float64(demb[at])) + math.Abs(float64(g[b]))*abs) * float64(nf+4) * 0x1p-23; math.Abs(float64(dgot[at])-want) > tol {
							t.Fatalf("%s: %d fields of %d: gradient %d,%d,%d is %g, want %g", chosen.name, nf, d, b, f, i, dgot[at], want)
						}
					}
				}
				if tol := size * float64(nf*d+8) * 0x1p-22; math.Abs(float64(got[b])-want) > tol {
					t.Fatalf("%s: %d fields of %d: logit %d is %g, want %g", chosen.name, nf, d, b, got[b], want)
				}
			}
		}
	})
}

func TestPairsOfNaNAndInf(t *testing.T) {
	old := chosen
	defer func() { chosen = old }()
	for _, chosen = range backends() {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			emb := make([]float32, 3*5*16)
			emb[5*16+33] = bad // sample 1
			y := make([]float32, 3)
			Forward(emb, make([]float32, 3*16), y, 5, 16)
			// Inf has the square Inf, and Inf less Inf is NaN.
			if y[0] != 0 || y[1] == y[1] || y[2] != 0 {
				t.Errorf("%s: %g among zeros gives %v", chosen.name, bad, y)
			}
		}
	}
}

func TestTheFastestPairsAreChosen(t *testing.T) {
	all := backends()
	want := "plain"
	if cpu.Use() >= cpu.AVX512 {
		want = all[len(all)-1].name
	}
	if chosen.name != want {
		t.Errorf("%s is in use, %s could be", chosen.name, want)
	}
}
