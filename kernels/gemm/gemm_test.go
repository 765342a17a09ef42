package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/kernels/par/partest"
)

func pool(t testing.TB, threads int) *Workspace {
	t.Helper()
	return &Workspace{Pool: partest.New(t, threads)}
}

const guard = -98765

// field is a matrix inside a guarded allocation: shifted, and with room between rows.
type field struct {
	Mat
	all []float32
}

func draw(r *rand.Rand, rows, cols, shift, gap int) field {
	n := 0
	if rows > 0 {
		n = (rows-1)*(cols+gap) + cols
	}
	all := make([]float32, shift+n+7)
	for i := range all {
		all[i] = guard
	}
	m := Mat{V: all[shift : shift+n : shift+n], Rows: rows, Cols: cols, Stride: cols + gap}
	for i := range rows {
		for j := range cols {
			m.V[i*m.Stride+j] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(6)-3)))
		}
	}
	return field{m, all}
}

// whole says that nothing but the elements has been written.
func (f field) whole() bool {
	n := 0
	for _, x := range f.all {
		if x == guard {
			n++
		}
	}
	return n == len(f.all)-f.Rows*f.Cols
}

func at(m Mat, i, j int) float64 {
	if m.transposed {
		i, j = j, i
	}
	return float64(m.V[i*m.Stride+j])
}

// exact is the definition in float64, with the sum of absolute values that bounds depend on.
func exact(c, a, b Mat, op Op, i, j int) (want, size float64) {
	if op.Beta != 0 {
		want = float64(op.Beta) * at(c, i, j)
	}
	if op.Bias != nil {
		want = float64(op.Bias[j])
	}
	size = math.Abs(want)
	for k := range a.Cols {
		p := float64(op.Alpha) * at(a, i, k) * at(b, k, j)
		want, size = want+p, size+math.Abs(p)
	}
	return want, size
}

func tolerance(k int, bf16 bool, size float64) float64 {
	tol := float64(k+2) * 0x1p-23 * size
	if bf16 {
		tol += 0x1p-7 * (1 + 0x1p-8) * size
	}
	return tol + float64(k)*0x1p-120
}

// compare multiplies with every backend and checks each element.
func compare(t *testing.T, seed uint64, m, n, k, threads int, ta, tb bool, op Op, bias, packed bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	shape := func(rows, cols int, t bool) field {
		if t {
			f := draw(r, cols, rows, r.IntN(16), r.IntN(5))
			f.Mat = f.T()
			return f
		}
		return draw(r, rows, cols, r.IntN(16), r.IntN(5))
	}
	a, b, c := shape(m, k, ta), shape(k, n, tb), draw(r, m, n, r.IntN(16), r.IntN(5))
	mask := draw(r, m, n, r.IntN(16), r.IntN(5))
	if op.Finish == Mask {
		op.Mask = mask.Mat
	}
	if bias {
		op.Bias, op.Beta = draw(r, 1, n, 0, 0).V, 0
	}
	p := pool(t, threads)
	start := slices.Clone(c.V)
	var fused []float32 // the bits of the first backend with fused multiply-adds
	for _, pair := range pairs() {
		for _, bf := range []bool{false, true} {
			op.BF16 = bf
			p.choice = &pair
			be := p.backend(bf)
			copy(c.V, start)
			var err error
			if packed {
				var pb *Packed
				if pb, err = p.Pack(nil, b.Mat, bf); err == nil {
					err = p.MulPacked(c.Mat, a.Mat, pb, op)
				}
			} else {
				err = p.Mul(c.Mat, a.Mat, b.Mat, op)
			}
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%v: %d,%d,%d threads %d ta %v tb %v alpha %g beta %g bias %v finish %d packed %v", be, m, n, k, threads, ta, tb, op.Alpha, op.Beta, bias, op.Finish, packed)
			if !c.whole() || !a.whole() || !b.whole() {
				t.Fatalf("%s: wrote outside C", name)
			}
			old := c.Mat
			old.V = start
			for i := range m {
				for j := range n {
					want, size := exact(old, a.Mat, b.Mat, op, i, j)
					switch {
					case op.Finish == ReLU:
						want = math.Max(0, want)
					case op.Finish == Mask && at(mask.Mat, i, j) <= 0:
						want, size = 0, 0
					}
					if got := at(c.Mat, i, j); !(math.Abs(got-want) <= tolerance(k, bf, size)) {
						t.Fatalf("%s: element %d,%d is %g, want %g within %g", name, i, j, got, want, tolerance(k, bf, size))
					}
				}
			}
			if !bf && be != plain {
				if fused == nil {
					fused = slices.Clone(c.V)
				} else if !slices.Equal(fused, c.V) {
					t.Fatalf("%s: other bits than the other fused backend", name)
				}
			}
		}
	}
}

func TestEveryTail(t *testing.T) {
	step := 1
	if testing.Short() || raceEnabled {
		step = 5
	}
	scales := []float32{1, 1, 0, -1.5, 0.25}
	for n := 1; n <= 70; n += step {
		s := uint64(n)
		op := Op{Alpha: scales[n%5], Beta: scales[(n/5)%5], Finish: Finish(n % 3)}
		compare(t, s, n, 37, 19, 1+n%2, n%2 == 0, n%3 == 0, op, n%4 == 0, n%5 == 0)
		compare(t, s, 17, n, 21, 1+n%2, n%3 == 0, n%2 == 0, op, n%4 == 1, n%5 == 1)
		compare(t, s, 29, 33, n, 1+n%2, n%2 == 1, n%3 == 1, op, n%4 == 2, n%5 == 2)
		compare(t, s, n, n, n, 2, n%2 == 1, n%3 == 1, Plain, false, false)
		compare(t, s, n, 71-n, 2*n, 2, false, false, op, n%2 == 0, false)
	}
}

func TestBlocksOfK(t *testing.T) {
	for _, k := range []int{0, kBlock - 1, kBlock, kBlock + 1, 2*kBlock + 5} {
		compare(t, uint64(k), 15, 34, k, 2, k%2 == 0, k%2 == 1, Op{Alpha: 1, Beta: 1, Finish: ReLU}, false, k%2 == 1)
		compare(t, uint64(k), 3, 65, k, 1, false, false, Op{Alpha: 1, Beta: 0.5, Finish: Mask}, k > kBlock, false)
	}
	if !testing.Short() && !raceEnabled {
		compare(t, 1, 5, 40, kMax+13, 2, false, false, Op{Alpha: -1, Beta: 1, Finish: Mask}, false, true)
		compare(t, 2, 15, 40, kMax+13, 2, true, true, Op{Alpha: 1, Finish: ReLU}, true, false)
		compare(t, 3, 15, packMax/1024+70, 1024, 2, true, true, Op{Alpha: 1, Finish: ReLU}, true, false)
	}
}

func FuzzMul(f *testing.F) {
	for i := range uint8(24) {
		f.Add(uint64(i), 3*i, 5*i+1, 7*i+1, i, i)
	}
	f.Fuzz(func(t *testing.T, seed uint64, m, n, k, how, scale uint8) {
		op := Op{Alpha: float32(scale%4) - 1, Beta: float32(scale/4%4)/2 - 0.5, Finish: Finish(scale / 16 % 3)}
		compare(t, seed, int(m)%100, int(n)%140, int(k), 1+int(how&1), how&2 != 0, how&4 != 0, op, how&8 != 0, how&16 != 0)
	})
}

// Rows, columns, threads and packing may be cut as one likes: the bits are the same.
func TestOneChainPerElement(t *testing.T) {
	for _, pair := range pairs() {
		for _, bf := range []bool{false, true} {
			r := rand.New(rand.NewPCG(3, 1))
			a, b := draw(r, 61, kBlock+30, 3, 2), draw(r, kBlock+30, 107, 1, 0)
			bias := draw(r, 1, 107, 0, 0).V
			op := Op{Alpha: 1, Bias: bias, Finish: ReLU, BF16: bf}
			one, two := pool(t, 1), pool(t, 2)
			one.choice, two.choice = &pair, &pair
			want := make([]float32, 61*107)
			if err := one.Mul(Of(want, 61, 107), a.Mat, b.Mat, op); err != nil {
				t.Fatal(err)
			}
			got := make([]float32, len(want))
			pb, err := two.Pack(nil, b.Mat, bf)
			if err != nil {
				t.Fatal(err)
			}
			for name, mul := range map[string]func() error{
				"two threads": func() error { return two.Mul(Of(got, 61, 107), a.Mat, b.Mat, op) },
				"packed":      func() error { return two.MulPacked(Of(got, 61, 107), a.Mat, pb, op) },
				"row by row": func() error {
					for i := range 61 {
						row := Mat{V: a.V[i*a.Stride:][:a.Cols], Rows: 1, Cols: a.Cols, Stride: a.Stride}
						if err := two.Mul(Of(got[i*107:(i+1)*107], 1, 107), row, b.Mat, op); err != nil {
							return err
						}
					}
					return nil
				},
				"some columns at a time": func() error {
					for j := 0; j < 107; j += 11 {
						n, op := min(11, 107-j), op
						op.Bias = bias[j : j+n]
						cols := Mat{V: b.V[j:], Rows: b.Rows, Cols: n, Stride: b.Stride}
						if err := one.Mul(Mat{V: got[j:], Rows: 61, Cols: n, Stride: 107}, a.Mat, cols, op); err != nil {
							return err
						}
					}
					return nil
				},
			} {
				clear(got)
				if err := mul(); err != nil {
					t.Fatalf("%v, %s: %v", pair, name, err)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%v, bf16 %v: %s gives other bits", pair, bf, name)
				}
			}
		}
	}
}

func TestNaNAndInf(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	p := pool(t, 2)
	const m, n, k = 20, 45, 33
	for _, pair := range pairs() {
		p.choice = &pair
		for _, bf := range []bool{false, true} {
			for _, bad := range []float32{nan, inf} {
				for _, spot := range []int{0, 13, 19} {
					a, b, c := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
					a[spot*k+32] = bad // times zero
					for _, op := range []Op{{Alpha: 1, BF16: bf, Finish: ReLU}, {Alpha: 0, BF16: bf}, {Alpha: 1, BF16: bf, Finish: Mask, Mask: Of(slices.Repeat([]float32{nan}, m*n), m, n)}} {
						c[0] = nan // beta 0 must not read it
						if err := p.Mul(Of(c, m, n), Of(a, m, k), Of(b, k, n), op); err != nil {
							t.Fatal(err)
						}
						for i, x := range c {
							if (x != x) != (i/n == spot) {
								t.Fatalf("%v, %+v: %g in row %d, element %d is %g", p.backend(bf), op, bad, spot, i, x)
							}
						}
					}
				}
			}
			a, b, c := []float32{inf}, []float32{-2}, []float32{1}
			if err := p.Mul(Of(c, 1, 1), Of(a, 1, 1), Of(b, 1, 1), Op{Alpha: 1, Beta: 1, BF16: bf}); err != nil || c[0] != -inf {
				t.Errorf("%v: Inf*-2+1 is %g, %v", p.backend(bf), c[0], err)
			}
		}
	}
}

func TestRounding(t *testing.T) {
	for _, tc := range [][2]uint32{
		{0x3f800000, 0x3f800000}, {0x3f808000, 0x3f800000}, {0x3f818000, 0x3f820000}, {0x3f808001, 0x3f810000},
		{0xbf817fff, 0xbf810000}, {0x7f7fffff, 0x7f800000}, {0x7f800000, 0x7f800000}, {0x80000000, 0x80000000},
	} {
		if got := math.Float32bits(roundBF16Go(math.Float32frombits(tc[0]))); got != tc[1] {
			t.Errorf("%#x becomes %#x, want %#x", tc[0], got, tc[1])
		}
		p := pool(t, 1)
		for _, pair := range pairs() { // x*1 shows what packing did to x, in A and in B
			p.choice = &pair
			for i := range 2 {
				f := []float32{1, 1}
				f[i] = math.Float32frombits(tc[0])
				c := []float32{0}
				if err := p.Mul(Of(c, 1, 1), Of(f[:1], 1, 1), Of(f[1:], 1, 1), Op{Alpha: 1, BF16: true}); err != nil || c[0] != math.Float32frombits(tc[1]) {
					t.Errorf("%v: %#x becomes %#x, want %#x, %v", pair, tc[0], math.Float32bits(c[0]), tc[1], err)
				}
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	p := pool(t, 1)
	v := make([]float32, 12)
	pb, err := p.Pack(nil, Of(v, 3, 4), false)
	if err != nil {
		t.Fatal(err)
	}
	c := []float32{7, 7, 7, 7}
	ok := Of(c, 1, 4)
	for says, err := range map[string]error{
		"1 by 4 = 1 by 3 times 4 by 3":   p.Mul(ok, Of(v, 1, 3), Of(v, 4, 3), Plain),
		"or C is transposed":             p.Mul(Of(c, 4, 1).T(), Of(v, 1, 3), Of(v, 3, 4), Plain),
		"B holds 11 floats":              p.Mul(ok, Of(v, 1, 3), Of(v[:11], 3, 4), Plain),
		"A holds 2 floats":               p.Mul(ok, Of(v[:2], 1, 3), Of(v, 3, 4), Plain),
		"C holds 3 floats":               p.Mul(Of(c[:3], 1, 4), Of(v, 1, 3), Of(v, 3, 4), Plain),
		"A is 1 by 3 with stride 2":      p.Mul(ok, Mat{V: v, Rows: 1, Cols: 3, Stride: 2}, Of(v, 3, 4), Plain),
		"C is -1 by 4":                   p.Mul(Of(c, -1, 4), Of(v, -1, 3), Of(v, 3, 4), Plain),
		"a bias of 3 floats":             p.Mul(ok, Of(v, 1, 3), Of(v, 3, 4), Op{Alpha: 1, Bias: v[:3]}),
		"with beta 1":                    p.Mul(ok, Of(v, 1, 3), Of(v, 3, 4), Op{Alpha: 1, Beta: 1, Bias: v[:4]}),
		"unknown finish":                 p.Mul(ok, Of(v, 1, 3), Of(v, 3, 4), Op{Alpha: 1, Finish: 9}),
		"a mask of 0 by 0":               p.Mul(ok, Of(v, 1, 3), Of(v, 3, 4), Op{Alpha: 1, Finish: Mask}),
		"the mask holds 3":               p.Mul(ok, Of(v, 1, 3), Of(v, 3, 4), Op{Alpha: 1, Finish: Mask, Mask: Of(v[:3], 1, 4)}),
		"1 by 4 = 1 by 2 times 3 by 4":   p.MulPacked(ok, Of(v, 1, 2), pb, Plain),
		"packed for":                     p.MulPacked(ok, Of(v, 1, 3), pb, Op{Alpha: 1, BF16: true}),
		"B holds 12 floats: 4 rows of 4": func() error { _, err := p.Pack(nil, Of(v, 4, 4), false); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	if !slices.Equal(c, []float32{7, 7, 7, 7}) {
		t.Errorf("a refused product wrote %v", c)
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	a, b, c := draw(r, 40, 50, 0, 0), draw(r, 50, 60, 0, 0), draw(r, 40, 60, 0, 0)
	for _, threads := range []int{1, 2} {
		p := pool(t, threads)
		var pb *Packed
		if n := testing.AllocsPerRun(100, func() {
			for _, bf := range []bool{false, true} {
				op := Op{Alpha: 1, BF16: bf}
				err := p.Mul(c.Mat, a.Mat, b.Mat, op)
				if err == nil {
					pb, err = p.Pack(pb, b.Mat, bf)
				}
				if err == nil {
					err = p.MulPacked(c.Mat, a.Mat, pb, op)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}); n != 0 {
			t.Errorf("%d threads: %v allocations", threads, n)
		}
	}
}

func TestCeiling(t *testing.T) {
	if one, two := Ceiling(1, 5*time.Millisecond), CeilingBF16(2, 5*time.Millisecond); !(one > 0.01) || !(two > 0.01) {
		t.Errorf("ceilings %g and %g GFLOP/s", one, two)
	}
}

func BenchmarkFMACeiling(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads%d", threads), func(b *testing.B) {
			var f, h float64
			for b.Loop() {
				f, h = Ceiling(threads, 100*time.Millisecond), CeilingBF16(threads, 100*time.Millisecond)
			}
			b.ReportMetric(f, "GFLOP/s")
			b.ReportMetric(h, "bf16-GFLOP/s")
		})
	}
}

func BenchmarkGemm(b *testing.B) {
	shapes := []struct {
		name    string
		m, n, k int
		ta, tb  bool
	}{
		{"square1024", 1024, 1024, 1024, false, false},
		{"layer1", 512, 1024, 416, false, false},
		{"layer2", 512, 256, 1024, false, false},
		{"layer3", 512, 32, 256, false, false},
		{"layer1dW", 416, 1024, 512, true, false},
		{"layer1dX", 512, 416, 1024, false, true},
		{"layer2dW", 1024, 256, 512, true, false},
		{"layer2dX", 512, 1024, 256, false, true},
		{"predict100x256x64", 100, 256, 64, false, false},
		{"predict1x256x64", 1, 256, 64, false, false},
	}
	for _, s := range shapes {
		for _, threads := range []int{1, 2} {
			for _, bf := range []bool{false, true} {
				name := fmt.Sprintf("%s/threads%d/%v", s.name, threads, map[bool]string{false: "fp32", true: "bf16"}[bf])
				b.Run(name, func(b *testing.B) {
					r := rand.New(rand.NewPCG(3, 1))
					x, w, c := draw(r, s.m, s.k, 0, 0).Mat, draw(r, s.k, s.n, 0, 0).Mat, draw(r, s.m, s.n, 0, 0).Mat
					if s.ta {
						x = draw(r, s.k, s.m, 0, 0).T()
					}
					if s.tb {
						w = draw(r, s.n, s.k, 0, 0).T()
					}
					p := pool(b, threads)
					for b.Loop() {
						if err := p.Mul(c, x, w, Op{Alpha: 1, BF16: bf}); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(2*float64(s.m)*float64(s.n)*float64(s.k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
