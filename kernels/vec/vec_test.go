package vec

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/kernels/internal/cpu"
)

// vectors draws count slices of n numbers, each starting shift elements behind an
// allocation's start and followed by a guard that nobody may touch.
func vectors(seed uint64, count, n, shift int) (vs [][]float32, guards func() bool) {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	const guard = 12345
	var all [][]float32
	for range count {
		buf := make([]float32, shift+n+9)
		for i := range buf {
			buf[i] = guard
		}
		v := buf[shift : shift+n]
		for i := range v {
			v[i] = float32(r.NormFloat64() * math.Pow(2, float64(r.IntN(8)-4)))
		}
		all, vs = append(all, buf), append(vs, v)
	}
	return vs, func() bool {
		for _, buf := range all {
			for i, x := range buf {
				if (i < shift || i >= shift+n) && x != guard {
					return false
				}
			}
		}
		return true
	}
}

func FuzzBackends(f *testing.F) {
	for n := range uint16(67) {
		f.Add(uint64(n), n, uint8(n)) // every tail around 8, 16, 32 and 64 lanes
	}
	f.Fuzz(func(t *testing.T, seed uint64, size uint16, s uint8) {
		n, shift := int(size%2048), int(s%8)
		if n == 0 {
			return // Dot and the others stop before the backends
		}
		for _, be := range backends() {
			vs, whole := vectors(seed, 5, n, shift)
			a, b := vs[0], vs[1]
			var want, scale float64
			for i := range a {
				p := float64(a[i]) * float64(b[i])
				want, scale = want+p, scale+math.Abs(p)
			}
			if got := float64(be.dot(a, b)); math.Abs(got-want) > scale*float64(n+1)*0x1p-23 {
				t.Errorf("%s: dot n=%d shift=%d: %g, want %g", be.name, n, shift, got, want)
			}
			x, y := vs[2], slices.Clone(vs[3])
			be.axpy(1.7, x, vs[3])
			for i, got := range vs[3] {
				p := float64(float32(1.7)) * float64(x[i])
				if want := float64(y[i]) + p; math.Abs(float64(got)-want) > (math.Abs(p)+math.Abs(float64(y[i])))*0x1p-22 {
					t.Fatalf("%s: axpy n=%d shift=%d at %d: %g, want %g", be.name, n, shift, i, got, want)
				}
			}
			y4, one := slices.Clone(vs[4]), slices.Clone(vs[4])
			be.axpy4(1.7, -3, 0.1, 9, a, b, x, y, vs[4])
			for i, c := range []float32{1.7, -3, 0.1, 9} {
				be.axpy(c, [][]float32{a, b, x, y}[i], one)
			}
			if !slices.Equal(vs[4], one) { // same backend, same operations: same bits
				t.Errorf("%s: axpy4 n=%d shift=%d is not four times axpy of %v", be.name, n, shift, y4)
			}
			if !whole() {
				t.Fatalf("%s: n=%d shift=%d wrote outside its slices", be.name, n, shift)
			}
		}
	})
}

func TestLengths(t *testing.T) {
	a, b := []float32{1, 2, 3}, []float32{4, 5}
	if got := Dot(a, b); got != 14 {
		t.Errorf("dot %g", got)
	}
	if Dot(nil, a) != 0 || Dot(a, nil) != 0 {
		t.Error("dot of nothing")
	}
	y := []float32{1, 1, 1, 1}
	Axpy(2, a, y)
	if !slices.Equal(y, []float32{3, 5, 7, 1}) {
		t.Errorf("axpy %v", y)
	}
	Axpy(2, nil, y)
	Axpy4(1, 1, 1, 1, a, a, b, a, y)
	if !slices.Equal(y, []float32{3 + 1 + 1 + 4 + 1, 5 + 2 + 2 + 5 + 2, 7, 1}) {
		t.Errorf("axpy4 %v", y)
	}
	Axpy4(1, 1, 1, 1, a, nil, b, a, y)
	Add(b, y)
	if !slices.Equal(y, []float32{14, 21, 7, 1}) {
		t.Errorf("add %v", y)
	}
	Fill(3, y)
	if !slices.Equal(y, []float32{3, 3, 3, 3}) {
		t.Errorf("fill %v", y)
	}
}

func TestNaNAndInf(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, be := range backends() {
		for _, n := range []int{1, 7, 8, 33, 64} {
			for at := range n {
				a, b, y := make([]float32, n), make([]float32, n), make([]float32, n)
				a[at] = nan
				if got := be.dot(a, b); got == got {
					t.Errorf("%s: NaN at %d of %d is lost", be.name, at, n)
				}
				a[at] = inf
				if got := be.dot(a, b); got == got {
					t.Errorf("%s: Inf times 0 at %d of %d is %g", be.name, at, n, got)
				}
				be.axpy(0, a, y)
				if y[at] == y[at] {
					t.Errorf("%s: 0 times Inf at %d of %d is %g", be.name, at, n, y[at])
				}
			}
		}
	}
}

// A machine with AVX-512 that quietly runs lesser loops is a fault of the build.
func TestTheFastestIsChosen(t *testing.T) {
	all := backends()
	want := all[len(all)-1].name
	if os.Getenv(cpu.Kernels) != "" || os.Getenv(cpu.NoAVX2) != "" {
		want = min(cpu.Use(), cpu.AVX512, cpu.Level(len(all)-1)).String()
	}
	if chosen.name != want {
		t.Errorf("%s is in use, %s could be", chosen.name, want)
	}
	if len(all) <= int(cpu.AVX512) {
		t.Logf("only %d backends are compared here: the others are missing, or excluded from the build", len(all))
	}
}

func BenchmarkDot256(b *testing.B) {
	for _, be := range backends() {
		b.Run(be.name, func(b *testing.B) {
			vs, _ := vectors(1, 2, 256, 0)
			for b.Loop() {
				be.dot(vs[0], vs[1])
			}
		})
	}
}

func BenchmarkAxpy4x256(b *testing.B) {
	for _, be := range backends() {
		b.Run(be.name, func(b *testing.B) {
			vs, _ := vectors(1, 5, 256, 0)
			for b.Loop() {
				be.axpy4(1e-9, 1e-9, -1e-9, -1e-9, vs[0], vs[1], vs[2], vs[3], vs[4])
			}
		})
	}
}
