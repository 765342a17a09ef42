package compress_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/kernels/compress"
)

func must[C any](c C, err error) C {
	if err != nil {
		panic(err)
	}
	return c
}

func all() []compress.Compressor {
	return []compress.Compressor{
		compress.FP32{}, compress.FP16{}, must(compress.NewFixedR8(1)), must(compress.NewFixedR8(.3)), must(compress.NewOneBit(200, 1, 10000, .1)),
	}
}

// The bytes of each format, which other programs read and write.
func TestBytes(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tc := range []struct {
		c      compress.Compressor
		values []float32
		bytes  []byte
		back   []float32
	}{
		{compress.FP32{}, []float32{1, -2.5, inf}, []byte{0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0, 0, 0, 0x80, 0x7f}, []float32{1, -2.5, inf}},
		{compress.FP16{}, []float32{1, -2, 65504, 65520, 0x1p-24, 1.0009765625, -inf}, []byte{0, 0x3c, 0, 0xc0, 0xff, 0x7b, 0, 0x7c, 1, 0, 1, 0x3c, 0, 0xfc}, []float32{1, -2, 65504, inf, 0x1p-24, 1.0009765625, -inf}},
		{must(compress.NewFixedR8(1)), []float32{0, 1, -1, .5, -.5, 1. / 256, -1. / 256, .0039, inf, -inf, nan, 3, -3, .99},
			[]byte{0, 127, 0x80, 64, 0xc0, 1, 0xff, 0, 127, 0x80, 0, 127, 0x80, 127},
			[]float32{0, 127. / 128, -1, .5, -.5, 1. / 128, -1. / 128, 0, 127. / 128, -1, 0, 127. / 128, -1, 127. / 128}},
		{must(compress.NewFixedR8(64)), []float32{1.24, 1.25, -1.75}, []byte{2, 3, 0xfc}, []float32{1, 1.5, -2}},
		{must(compress.NewOneBit(200, 1, 10, .25)), []float32{3, 0, -3, 1e-45, nan, inf, -inf}, []byte{1, 0xff, 0xff, 1, 0xff, 1, 0xff}, []float32{.25, -.25, -.25, .25, -.25, .25, -.25}},
	} {
		got := make([]byte, tc.c.Size(len(tc.values)))
		tc.c.Encode(got, tc.values)
		if !bytes.Equal(got, tc.bytes) {
			t.Errorf("%s of %v: % x, want % x", tc.c.Name(), tc.values, got, tc.bytes)
		}
		back := make([]float32, len(tc.values))
		if tc.c.Decode(back, tc.bytes); !slices.Equal(back, tc.back) {
			t.Errorf("%s of % x: %v, want %v", tc.c.Name(), tc.bytes, back, tc.back)
		}
	}
	b := make([]byte, 2)
	if compress.FP16.Encode(compress.FP16{}, b, []float32{nan}); b[1]&0x7c != 0x7c || binary.LittleEndian.Uint16(b)&0x3ff == 0 {
		t.Errorf("fp16 of NaN is % x", b)
	}
}

// Whatever the numbers and wherever the bytes lie: errors within bounds, a second trip
// that changes nothing, Add equal to Decode and a sum, neighbours untouched.
func FuzzRoundTrip(f *testing.F) {
	for n := range uint8(40) {
		f.Add(uint64(n), n, n%9)
	}
	f.Fuzz(func(t *testing.T, seed uint64, dim, shift uint8) {
		r := rand.New(rand.NewPCG(seed, 1))
		values := make([]float32, dim)
		for i := range values {
			values[i] = float32(r.NormFloat64() * math.Pow(2, float64(r.IntN(30)-25)))
			if r.IntN(9) == 0 {
				values[i] = math.Float32frombits(r.Uint32())
			}
		}
		for _, c := range all() {
			size := c.Size(len(values))
			buf := bytes.Repeat([]byte{0xa5}, size+int(shift)+8)
			src := buf[shift : int(shift)+size]
			c.Encode(src, values)
			for i, b := range buf {
				if (i < int(shift) || i >= int(shift)+size) && b != 0xa5 {
					t.Fatalf("%s wrote outside", c.Name())
				}
			}
			got, again := make([]float32, dim), make([]byte, size)
			c.Decode(got, src)
			for i, x := range values {
				check(t, c, float64(x), float64(got[i]))
			}
			if _, quantized := c.(compress.OneBit); !quantized {
				if c.Encode(again, got); !bytes.Equal(again, src) {
					t.Fatalf("%s: % x became % x on a second trip", c.Name(), src, again)
				}
			}
			sum := make([]float32, dim)
			for i := range sum {
				sum[i] = values[len(values)-1-i]
			}
			want := slices.Clone(sum)
			c.Add(sum, src)
			for i := range want {
				want[i] += got[i]
				if want[i] != sum[i] && (want[i] == want[i] || sum[i] == sum[i]) {
					t.Fatalf("%s: adds to %g, want %g", c.Name(), sum[i], want[i])
				}
			}
			if a, ok := c.(compress.FixedR8); ok {
				if a.Look(sum, values, 3); !slices.Equal(sum, got) {
					t.Fatalf("fixed_r8: training sees %v, serving says %v", sum, got)
				}
			}
		}
	})
}

func check(t *testing.T, c compress.Compressor, x, got float64) {
	t.Helper()
	diff, most := math.Abs(got-x), 0.
	switch c := c.(type) {
	case compress.FP32:
	case compress.FP16:
		most = max(math.Abs(x)*0x1p-11, 0x1p-25)
		if math.Abs(x) >= 65520 {
			if got != math.Copysign(math.Inf(1), x) {
				t.Fatalf("fp16: %g became %g", x, got)
			}
			return
		}
	case compress.FixedR8:
		r := float64(c.Range())
		switch step := r / 128; {
		case x != x:
			x, diff = 0, math.Abs(got)
		case x > r-step:
			diff = math.Abs(got - (r - step))
			most = 1e-6 * r
		case x < -r:
			diff = math.Abs(got + r)
			most = 1e-6 * r
		default:
			most = step / 2 * (1 + 1e-5)
		}
	case compress.OneBit:
		if math.Abs(got) != float64(c.Amplitude) || got > 0 != (x > 0) {
			t.Fatalf("one_bit: %g became %g", x, got)
		}
		return
	}
	if !(diff <= most) && !(x != x && got != got) && x != got {
		t.Fatalf("%s: %g became %g", c.Name(), x, got)
	}
}

// Exact arithmetic is the second opinion on every step and half step of fixed_r8.
func TestFixedR8Exactly(t *testing.T) {
	c := must(compress.NewFixedR8(1))
	b := make([]byte, 1)
	for k := -300; k <= 300; k++ {
		for _, nudge := range []float32{-1, 0, 1} {
			x := math.Nextafter32(float32(k)/256, float32(k)/256+nudge)
			q := new(big.Rat).SetFloat64(float64(x))
			q.Mul(q, big.NewRat(128, 1))
			q.Add(q, big.NewRat(int64(q.Sign()), 2))
			want := new(big.Int).Quo(q.Num(), q.Denom()).Int64() // truncates
			c.Encode(b, []float32{x})
			// One float32 below a tie, adding half a step may round up to it.
			if got := int64(int8(b[0])); got != min(max(want, -128), 127) && !(nudge != 0 && got-want == int64(q.Sign())) {
				t.Errorf("%g is %d steps, want %d", x, got, want)
			}
		}
	}
}

func TestOneBitTraining(t *testing.T) {
	c := must(compress.NewOneBit(200, 2, 5, .1))
	for step, want := range map[int64]float64{-1: 2, 0: 2, 199: 2, 200: 2 * math.Sqrt2, 399: 2 * math.Sqrt2, 400: 2 * math.Sqrt(3), 1 << 40: 5} {
		if got := float64(c.Scale(step)); math.Abs(got-want) > 1e-6 {
			t.Errorf("scale at %d is %g, want %g", step, got, want)
		}
	}
	w := []float32{-3, -.4, 0, .01, .4, 3}
	seen, up, down, grad := make([]float32, 6), make([]float32, 6), make([]float32, 6), []float32{1, 2, 3, -1, -2, 4}
	g := slices.Clone(grad)
	c.Look(seen, w, 250)
	c.Grade(g, w, 250)
	const h = 1e-3
	for i, x := range w {
		if want := .1 * math.Tanh(2*math.Sqrt2*float64(x)); math.Abs(float64(seen[i])-want) > 1e-7 {
			t.Errorf("%g looks like %g, want %g", x, seen[i], want)
		}
		c.Look(up, []float32{x + h}, 250)
		c.Look(down, []float32{x - h}, 250)
		if slope := float64(up[0]-down[0]) / (2 * h); math.Abs(float64(g[i])-slope*float64(grad[i])) > 1e-3 {
			t.Errorf("gradient at %g is %g, want %g", x, g[i], slope*float64(grad[i]))
		}
	}
	r := must(compress.NewFixedR8(1))
	if before := slices.Clone(g); !slices.Equal(before, func() []float32 { r.Grade(g, w, 1); return g }()) {
		t.Error("fixed_r8 changed a gradient")
	}
}

func TestRefusals(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, r := range []float32{0, -1, nan, inf, 1e-40} {
		if _, err := compress.NewFixedR8(r); err == nil {
			t.Errorf("fixed_r8 of %g", r)
		}
	}
	for _, o := range []compress.OneBit{{0, 1, 2, 1}, {1, 0, 2, 1}, {1, nan, 2, 1}, {1, 3, 2, 1}, {1, 1, inf, 1}, {1, 1, 2, 0}, {1, 1, 2, inf}} {
		if _, err := compress.NewOneBit(o.StepSize, o.InitScale, o.MaxScale, o.Amplitude); err == nil {
			t.Errorf("one_bit of %+v", o)
		}
	}
	for _, c := range all() {
		for _, f := range []func(){
			func() { c.Encode(make([]byte, c.Size(3)-1), make([]float32, 3)) },
			func() { c.Decode(make([]float32, 3), make([]byte, c.Size(3)+1)) },
			func() { c.Add(make([]float32, 2), make([]byte, c.Size(3))) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s takes lengths that do not fit", c.Name())
					}
				}()
				f()
			}()
		}
		c.Encode(nil, nil)
		c.Decode(nil, nil)
		c.Add(nil, nil)
	}
}

// What was decoded encodes to the same bytes: rows may travel as they are kept.
func TestASecondTripChangesNothing(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	bits := []byte{1, 0xff, 0xff, 1, 1}
	trip := func(c compress.Compressor, b []byte) {
		t.Helper()
		x, again := make([]float32, len(b)), make([]byte, len(b))
		c.Decode(x, b)
		if c.Encode(again, x); !bytes.Equal(again, b) {
			t.Errorf("%+v: % x became % x", c, b, again)
		}
	}
	for _, r := range []float32{1, .5, 3, 1. / 3, 1e-30, 1e30, 0x1p-119, 3.3e38, 7.7777777} {
		c, err := compress.NewFixedR8(r)
		if err != nil {
			t.Fatal(err)
		}
		trip(c, all)
		if c.Step() != c.Range()/128 {
			t.Errorf("%g of %g in 128 steps", c.Step(), c.Range())
		}
	}
	for _, a := range []float32{.1, 1e-45, 3.3e38} {
		c, err := compress.NewOneBit(200, 1, 10000, a)
		if err != nil {
			t.Fatal(err)
		}
		trip(c, bits)
	}
}
