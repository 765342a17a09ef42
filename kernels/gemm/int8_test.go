package gemm

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/par/partest"
)

// quantised is the definition: whole numbers and their scale.
func quantised(row []float32) (q []int64, scale float32) {
	q = make([]int64, len(row))
	largest := float32(0)
	for _, x := range row {
		switch abs := float32(math.Abs(float64(x))); {
		case math.IsNaN(float64(x)) || math.IsInf(float64(x), 0):
			return q, float32(math.NaN())
		case abs > largest:
			largest = abs
		}
	}
	if largest < 0x1p-120 {
		return q, 0
	}
	inv := 127 / largest
	for i, x := range row {
		q[i] = int64(math.RoundToEven(float64(float32(x * inv))))
	}
	return q, largest / 127
}

// product8 is the definition of a product in int8.
func product8(a, b Mat, op Op) (c []float32) {
	columns, scales := make([][]int64, b.Cols), make([]float32, b.Cols)
	for j := range columns {
		column := make([]float32, b.Rows)
		for k := range column {
			column[k] = b.at(k, j)
		}
		columns[j], scales[j] = quantised(column)
	}
	for i := range a.Rows {
		row, scale := quantised(a.V[i*a.Stride:][:a.Cols])
		for j, column := range columns {
			sum := int64(0)
			for k, x := range row {
				sum += x * column[k]
			}
			v := float32(float32(sum) * scale)
			v = float32(v * scales[j])
			if op.Bias != nil {
				v += op.Bias[j]
			}
			if op.Finish == ReLU && v < 0 {
				v = 0
			}
			c = append(c, v)
		}
	}
	return c
}

func sameNumber(x, y float32) bool {
	return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
}

// Every backend computes the definition to the bit, on any number of threads, at any address, and writes nothing else.
func FuzzInt8(f *testing.F) {
	for i := range uint16(70) {
		f.Add(uint64(i), i, 5*i%67, 13*i%130, uint8(i))
	}
	f.Add(uint64(1), uint16(130), uint16(40), uint16(700), uint8(1))
	f.Add(uint64(2), uint16(9), uint16(200), uint16(1025), uint8(6))
	pools := []*Workspace{pool(f, 1), pool(f, 2), pool(f, 3)}
	f.Fuzz(func(t *testing.T, seed uint64, m, n, k uint16, how uint8) {
		m, n, k = m%300, n%300, k%1100
		r := rand.New(rand.NewPCG(seed, 8))
		a, b := draw(r, int(m), int(k), int(how%5), int(how%3)), draw(r, int(k), int(n), int(how%4), int(how%2))
		if how%7 == 3 {
			b = draw(r, int(n), int(k), 1, 1)
			b.Mat = b.T()
		}
		if m > 0 && k > 0 { // what is no number, what is nearly nothing, and what is nothing
			a.V[r.IntN(int(m))*a.Stride+r.IntN(int(k))] = []float32{float32(math.NaN()), float32(math.Inf(1)), 0, 0x1p-130, 1e30}[how%5]
			if how%2 == 0 {
				row := a.V[int(seed%uint64(m))*a.Stride:][:k]
				for i := range row {
					row[i] *= 0x1p-126
				}
			}
		}
		if how%11 == 5 && n > 0 && k > 0 {
			b.V[0] = float32(math.Inf(-1))
		}
		op := Op{Alpha: 1, Finish: Finish(how % 2)}
		if how%3 > 0 {
			for range n {
				op.Bias = append(op.Bias, float32(r.NormFloat64()))
			}
		}
		want := product8(a.Mat, b.Mat, op)
		for _, be := range backends8() {
			for _, s := range pools {
				s.choice8 = be
				packed, err := s.PackInt8(nil, b.Mat)
				if err != nil {
					t.Fatal(err)
				}
				c := draw(r, int(m), int(n), int(how%6), int(how%3))
				if err := s.MulInt8(c.Mat, a.Mat, packed, op); err != nil {
					t.Fatal(err)
				}
				for i := range c.Rows {
					for j := range c.Cols {
						if got := c.at(i, j); !sameNumber(got, want[i*c.Cols+j]) {
							t.Fatalf("%s, %d threads, %d by %d by %d: element %d,%d is %g, want %g", be.name, s.Pool.Threads(), m, k, n, i, j, got, want[i*c.Cols+j])
						}
					}
				}
				if !c.whole() || !a.whole() || !b.wholeEither() {
					t.Fatalf("%s wrote beside its result", be.name)
				}
			}
		}
	})
}

// wholeEither is whole of a matrix that may be transposed.
func (f field) wholeEither() bool {
	if f.transposed {
		f.Mat = f.T()
	}
	return f.whole()
}

// What int8 says is as near to the exact product as the package states.
func TestInt8Bound(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	a, b := draw(r, 40, 417, 0, 0), draw(r, 417, 33, 0, 0)
	s := &Workspace{}
	packed, err := s.PackInt8(nil, b.Mat)
	if err != nil {
		t.Fatal(err)
	}
	c := make([]float32, 40*33)
	if err := s.MulInt8(Of(c, 40, 33), a.Mat, packed, Plain); err != nil {
		t.Fatal(err)
	}
	off := 0.0
	for i := range 40 {
		for j := range 33 {
			rowMax, colMax := 0.0, 0.0
			for k := range 417 {
				rowMax, colMax = max(rowMax, math.Abs(at(a.Mat, i, k))), max(colMax, math.Abs(at(b.Mat, k, j)))
			}
			want, bound := exact(Mat{}, a.Mat, b.Mat, Plain, i, j)
			bound *= 1e-6
			for k := range 417 {
				bound += (math.Abs(at(a.Mat, i, k))*colMax + math.Abs(at(b.Mat, k, j))*rowMax + rowMax*colMax/254) / 254
			}
			err := math.Abs(float64(c[i*33+j]) - want)
			off = max(off, err)
			if err > bound {
				t.Fatalf("element %d,%d is %g off, the bound is %g", i, j, err, bound)
			}
		}
	}
	if off == 0 {
		t.Error("nothing was rounded")
	}
}

func TestInt8Refuses(t *testing.T) {
	s := &Workspace{}
	b, err := s.PackInt8(nil, Of(make([]float32, 6), 3, 2))
	if err != nil {
		t.Fatal(err)
	}
	a, c := Of(make([]float32, 12), 4, 3), Of(make([]float32, 8), 4, 2)
	for says, run := range map[string]func() error{
		"do not fit":            func() error { return s.MulInt8(c, Of(a.V, 3, 4), b, Plain) },
		"C or A is transposed":  func() error { return s.MulInt8(c, Of(a.V, 3, 4).T(), b, Plain) },
		"alpha 2":               func() error { return s.MulInt8(c, a, b, Op{Alpha: 2}) },
		"finish 2":              func() error { return s.MulInt8(c, a, b, Op{Alpha: 1, Finish: Mask, Mask: c}) },
		"a bias of 1 floats":    func() error { return s.MulInt8(c, a, b, Op{Alpha: 1, Bias: make([]float32, 1)}) },
		"A holds 11 floats":     func() error { return s.MulInt8(c, Of(a.V[:11], 4, 3), b, Plain) },
		"add up at most 133144": func() error { _, err := s.PackInt8(nil, Of(make([]float32, 133145), 133145, 1)); return err },
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	// The largest sum there is fits.
	const k = 133144
	x := make([]float32, k)
	for i := range x {
		x[i] = -3
	}
	for _, be := range backends8() {
		s.choice8 = be
		if b, err = s.PackInt8(b, Of(x, k, 1)); err != nil {
			t.Fatal(err)
		}
		var got [1]float32
		if err := s.MulInt8(Of(got[:], 1, 1), Of(x, 1, k), b, Plain); err != nil || math.Abs(float64(got[0])-9*k) > 1 {
			t.Errorf("%s: %g, %v", be.name, got[0], err)
		}
	}
}

func TestInt8AllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	for _, threads := range []int{1, 2} {
		s := &Workspace{Pool: partest.New(t, threads)}
		r := rand.New(rand.NewPCG(1, 1))
		a, b, c := draw(r, 200, 300, 0, 0), draw(r, 300, 90, 0, 0), draw(r, 200, 90, 0, 0)
		var packed *PackedInt8
		step := func() {
			var err error
			if packed, err = s.PackInt8(packed, b.Mat); err != nil {
				t.Fatal(err)
			}
			if err = s.MulInt8(c.Mat, a.Mat, packed, Plain); err != nil {
				t.Fatal(err)
			}
		}
		step()
		if n := testing.AllocsPerRun(20, step); n > 0 {
			t.Errorf("%d threads: %v allocations", threads, n)
		}
	}
}

// BenchmarkInt8 is a layer of 512 samples, 416 to 1024, on one thread.
func BenchmarkInt8(b *testing.B) {
	const m, k, n = 512, 416, 1024
	r := rand.New(rand.NewPCG(1, 1))
	x, w, c := draw(r, m, k, 0, 0), draw(r, k, n, 0, 0), draw(r, m, n, 0, 0)
	report := func(b *testing.B) { b.ReportMetric(2*m*k*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s") }
	for _, be := range backends8() {
		b.Run(be.name, func(b *testing.B) {
			s := &Workspace{choice8: be}
			packed, err := s.PackInt8(nil, w.Mat)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := s.MulInt8(c.Mat, x.Mat, packed, Plain); err != nil {
					b.Fatal(err)
				}
			}
			report(b)
		})
	}
	for _, bf16 := range []bool{false, true} {
		b.Run(chosen[map[bool]int{true: 1}[bf16]].name, func(b *testing.B) {
			s := &Workspace{}
			packed, err := s.Pack(nil, w.Mat, bf16)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := s.MulPacked(c.Mat, x.Mat, packed, Op{Alpha: 1, BF16: bf16}); err != nil {
					b.Fatal(err)
				}
			}
			report(b)
		})
	}
}
