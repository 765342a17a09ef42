package vec

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// odd are numbers that rounding, comparing and converting treat in their own ways.
var odd = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 1e-45, -1e-45, 1e-38, 0x1p-24, 0x1p-25, 0x1.000002p-25, 0x1p-14, 65504, 65519.996, 65520,
	math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.Float32frombits(0xff812345),
	1 + 0x1p-11, 1 + 3*0x1p-11, 2049, 2051,
}

// area is memory whose every byte behind or before the part in use must stay.
type area[T any] struct {
	all  []byte
	from int
	use  []T
}

// newArea starts shift elements behind its allocation; odd shifts of bytes are no
// alignment at all.
func newArea[T any](n, shift int) *area[T] {
	size := int(unsafe.Sizeof(*new(T)))
	a := &area[T]{all: bytes.Repeat([]byte{0xa5}, (n+shift)*size+64), from: shift * size}
	a.use = unsafe.Slice((*T)(unsafe.Pointer(&a.all[a.from])), n)
	return a
}

func (a *area[T]) whole() bool {
	size := int(unsafe.Sizeof(*new(T)))
	for i, b := range a.all {
		if (i < a.from || i >= a.from+len(a.use)*size) && b != 0xa5 {
			return false
		}
	}
	return true
}

func floats(r *rand.Rand, n, shift int, wild bool) *area[float32] {
	a := newArea[float32](n, shift)
	for i := range a.use {
		a.use[i] = float32(r.NormFloat64() * math.Pow(2, float64(r.IntN(40)-20)))
		if wild && r.IntN(4) == 0 {
			a.use[i] = odd[r.IntN(len(odd))]
		}
	}
	return a
}

func clone(a *area[float32], shift int) *area[float32] {
	b := newArea[float32](len(a.use), shift)
	copy(b.use, a.use)
	return b
}

// same compares bits; two NaNs are the same.
func same(a, b []float32) int {
	for i, x := range a {
		if math.Float32bits(x) != math.Float32bits(b[i]) && (x == x || b[i] == b[i]) {
			return i
		}
	}
	return -1
}

// Every backend gives plain Go's bits, for every length, alignment and kind of number.
func FuzzBlocks(f *testing.F) {
	for n := range uint16(70) {
		f.Add(uint64(n), n, uint8(n), n%2 == 0)
	}
	f.Add(uint64(9), uint16(1000), uint8(3), true)
	f.Fuzz(func(t *testing.T, seed uint64, size uint16, s uint8, wild bool) {
		n, shift := int(size%1500), int(s%17)
		if n == 0 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 1))
		x, y, z, u := floats(r, n, shift, wild), floats(r, n, 0, wild), floats(r, n, 0, wild), floats(r, n, 0, wild)
		for i, v := range z.use {
			if v < 0 && !wild {
				z.use[i] = -v // an accumulator
			}
		}
		h, q := newArea[uint16](n, shift), newArea[int8](n, shift)
		for i := range h.use {
			h.use[i], q.use[i] = uint16(r.Uint32()), int8(r.Uint32())
		}
		p := [5]float32{.05, .1, .01, 1e-3, .02}
		if wild {
			p = [5]float32{odd[r.IntN(len(odd))], odd[r.IntN(len(odd))], .01, 0, odd[r.IntN(len(odd))]}
		}
		narrow := newArea[uint16](n, 0)
		plain.toFP16(narrow.use, x.use)
		for _, be := range backends()[1:] {
			got := newArea[uint16](n, (shift+1)%8)
			be.toFP16(got.use, x.use)
			if !slices.Equal(narrow.use, got.use) || !got.whole() {
				t.Fatalf("%s: toFP16 n=%d shift=%d: % x of %g, plain Go says % x", be.name, n, shift, got.use, x.use, narrow.use)
			}
		}
		type state struct{ a, b, c *area[float32] }
		for name, run := range map[string]func(be backend, s state){
			"add":      func(be backend, s state) { be.add(x.use, s.a.use) },
			"fromFP16": func(be backend, s state) { be.fromFP16(s.a.use, h.use) },
			"addFP16":  func(be backend, s state) { be.addFP16(s.a.use, h.use) },
			"fromInt8": func(be backend, s state) { be.fromInt8(s.a.use, q.use, p[0]) },
			"addInt8":  func(be backend, s state) { be.addInt8(s.a.use, q.use, p[0]) },
			"sgd":      func(be backend, s state) { be.sgd(s.a.use, x.use, p[0]) },
			"adagrad":  func(be backend, s state) { be.adagrad(s.a.use, s.b.use, x.use, p[0], p[4]) },
			"adam":     func(be backend, s state) { be.adam(s.a.use, s.b.use, s.c.use, x.use, p[0], p[1], p[2], p[3], p[4]) },
		} {
			want := state{clone(y, 0), clone(z, 0), clone(u, 0)}
			run(plain, want)
			for _, be := range backends()[1:] {
				got := state{clone(y, shift), clone(z, (shift+3)%8), clone(u, (shift+5)%8)}
				run(be, got)
				for k, pair := range [][2]*area[float32]{{want.a, got.a}, {want.b, got.b}, {want.c, got.c}} {
					if i := same(pair[0].use, pair[1].use); i >= 0 {
						t.Fatalf("%s: %s n=%d shift=%d array %d at %d: %g, plain Go says %g", be.name, name, n, shift, k, i, pair[1].use[i], pair[0].use[i])
					}
					if !pair[1].whole() {
						t.Fatalf("%s: %s n=%d shift=%d wrote outside of array %d", be.name, name, n, shift, k)
					}
				}
			}
		}
		want := newArea[uint16](n, 0)
		plain.toFP16(want.use, x.use)
		for _, be := range backends()[1:] {
			got := newArea[uint16](n, shift)
			be.toFP16(got.use, x.use)
			for i := range got.use {
				if got.use[i] != want.use[i] {
					t.Fatalf("%s: toFP16 of %g (%#x) is %#x, plain Go says %#x", be.name, x.use[i], math.Float32bits(x.use[i]), got.use[i], want.use[i])
				}
			}
			if !got.whole() {
				t.Fatalf("%s: toFP16 n=%d shift=%d wrote outside", be.name, n, shift)
			}
		}
	})
}

// The second opinion on a half: its value from the definition, and the nearest of all.
func TestHalves(t *testing.T) {
	value := func(h uint16) float64 {
		sign, e, m := 1., int(h>>10&31), float64(h&0x3ff)
		if h>>15 != 0 {
			sign = -1
		}
		switch {
		case e == 31 && m != 0:
			return math.NaN()
		case e == 31:
			return sign * math.Inf(1)
		case e == 0:
			return sign * math.Ldexp(m, -24)
		}
		return sign * math.Ldexp(1024+m, e-25)
	}
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	for _, be := range backends() {
		wide, back := make([]float32, len(all)), make([]uint16, len(all))
		be.fromFP16(wide, all)
		be.toFP16(back, wide)
		for i, x := range wide {
			want := value(uint16(i))
			if float64(x) != want && want == want || want != want && x == x || math.Signbit(float64(x)) != (i>>15 != 0) {
				t.Fatalf("%s: half %#x is %g, want %g", be.name, i, x, want)
			}
			h := uint16(i)
			if want != want {
				h |= 0x200 // made quiet
			}
			if back[i] != h {
				t.Fatalf("%s: half %#x comes back as %#x", be.name, i, back[i])
			}
		}
		// Between each two neighbours: just below the middle, the middle, just above.
		for i := range uint16(0x7c00) {
			lo, hi := value(i), value(i+1)
			if i+1 == 0x7c00 {
				hi = 65536 // infinity stands where the next number would
			}
			mid := float32((lo + hi) / 2)
			in := []float32{math.Nextafter32(mid, 0), mid, math.Nextafter32(mid, 1e9), -mid}
			want := []uint16{i, i + i&1, i + 1, (i + i&1) | 0x8000}
			out := make([]uint16, 4)
			if be.toFP16(out, in); !slices.Equal(out, want) {
				t.Fatalf("%s: %v become %#x, want %#x", be.name, in, out, want)
			}
		}
	}
}

func TestBlockLengths(t *testing.T) {
	w, n, g := []float32{1, 1, 1}, []float32{1, 1}, []float32{2, 2, 2, 2}
	SGD(w, g[:2], .25)
	if !slices.Equal(w, []float32{.5, .5, 1}) {
		t.Errorf("sgd %v", w)
	}
	Adagrad(w, n, g, 0, 0)
	if !slices.Equal(n, []float32{5, 5}) || w[2] != 1 {
		t.Errorf("adagrad %v %v", w, n)
	}
	m, v := []float32{0, 0, 0}, []float32{0}
	Adam(w, m, v, g, 1, .5, .25, 1, 0)
	if m[0] != 1 || m[1] != 0 || v[0] != 1 || w[0] != 0 {
		t.Errorf("adam %v %v %v", w, m, v)
	}
	FromInt8Scaled(w, []int8{-128, 127}, .5)
	AddInt8Scaled(w, []int8{1}, .5)
	if !slices.Equal(w, []float32{-63.5, 63.5, 1}) {
		t.Errorf("int8 %v", w)
	}
	h := []uint16{0, 0, 7}
	ToFP16(h, w[:2])
	FromFP16(w, h[:1])
	AddFP16(w, h)
	if w[0] != -127 || w[1] != 127 || h[2] != 7 {
		t.Errorf("fp16 %v %v", w, h)
	}
	for _, f := range []func(){ // nothing to do, and nothing to stumble over
		func() { SGD(nil, g, 1) }, func() { Adagrad(w, nil, g, 1, 0) }, func() { Adam(w, m, v, nil, 1, 1, 1, 1, 1) },
		func() { FromFP16(w, nil) }, func() { AddFP16(nil, h) }, func() { ToFP16(h, nil) },
		func() { FromInt8Scaled(w, nil, 1) }, func() { AddInt8Scaled(nil, []int8{1}, 1) }, func() { Add(nil, w) },
	} {
		f()
	}
}

func BenchmarkRows(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	const dim = 64
	w, n, m, g := floats(r, dim, 0, false).use, make([]float32, dim), make([]float32, dim), make([]float32, dim)
	Fill(1, n)
	h, q := make([]uint16, dim), make([]int8, dim)
	for _, be := range backends() {
		for _, k := range []struct {
			name string
			run  func()
		}{
			{"add", func() { be.add(g, w) }},
			{"addFP16", func() { be.addFP16(w, h) }},
			{"addInt8", func() { be.addInt8(w, q, .1) }},
			{"toFP16", func() { be.toFP16(h, w) }},
			{"sgd", func() { be.sgd(w, g, .1) }},
			{"adagrad", func() { be.adagrad(w, n, g, .1, 0) }},
			{"adam", func() { be.adam(w, n, m, g, .1, .1, .1, .1, 0) }},
		} {
			b.Run(be.name+"/"+k.name, func(b *testing.B) {
				for b.Loop() {
					k.run()
				}
			})
		}
	}
}
