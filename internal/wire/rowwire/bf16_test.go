package rowwire

import (
	"bytes"
	"math"
	"testing"
)

// sentBF16 is v as it arrives.
func sentBF16(t testing.TB, v ...float32) []float32 {
	t.Helper()
	var e encoder
	e.bf16s(v)
	d := &decoder{b: e.b}
	got := d.bf16s(nil, len(v))
	if e.err != nil || d.end() != nil || len(got) != len(v) {
		t.Fatalf("%d numbers travel as %d: %v, %v", len(v), len(got), e.err, d.end())
	}
	return got
}

// What travels as bfloat16 is what a product would round it to, and its bits change no more.
func TestBFloat16(t *testing.T) {
	for x, want := range map[float32]float32{
		1: 1, -2.5: -2.5, 1 + 0x1p-9: 1, 1 + 0x1p-8: 1, 1 + 3*0x1p-8: 1 + 0x1p-6, 1 + 0x1p-8 + 0x1p-20: 1 + 0x1p-7,
		math.MaxFloat32: float32(math.Inf(1)), float32(math.Inf(-1)): float32(math.Inf(-1)), 0: 0,
	} {
		if got := sentBF16(t, x)[0]; got != want || sentBF16(t, got)[0] != got {
			t.Errorf("%g travels as %g, want %g", x, got, want)
		}
	}
	var all []float32
	for b := range uint32(1 << 16) {
		all = append(all, math.Float32frombits(b<<16))
	}
	for b, x := range sentBF16(t, all...) {
		if got := math.Float32bits(x); got != uint32(b)<<16 {
			t.Fatalf("%#x becomes %#x", b<<16, got)
		}
	}
	if got := sentBF16(t, math.Float32frombits(0x7f800001))[0]; got == got {
		t.Errorf("no number travels as %g", got)
	}
}

// However many numbers travel together, each travels as it does alone.
func FuzzBFloat16(f *testing.F) {
	f.Add([]byte{0, 0, 0x80, 0x3f, 1, 0, 0x80, 0x7f}, uint16(3))
	f.Add([]byte{0xff, 0xff, 0x7f, 0xff, 0, 0x80, 0x80, 0x3f, 0, 0x80, 0x81, 0x3f}, uint16(block+7))
	f.Fuzz(func(t *testing.T, data []byte, n uint16) {
		if len(data) < 4 {
			return
		}
		var v []float32
		for i := range int(n) {
			at := 4 * (i % (len(data) / 4))
			v = append(v, math.Float32frombits(le.Uint32(data[at:])+uint32(i)<<15))
		}
		var together, alone encoder
		together.bf16s(v)
		for _, x := range v {
			alone.u16(toBF16(x))
		}
		if !bytes.Equal(together.b, alone.b) {
			t.Fatalf("%v travel as % x, one by one as % x", v, together.b, alone.b)
		}
		sentBF16(t, v...)
	})
}

// To know whether a message fits nothing of it is rounded.
func TestABandIsWeighedWithoutRounding(t *testing.T) {
	m := &DenseResponse{Tensors: []NamedTensor{{Name: "k", BF16: true, Values: make([]float32, 1<<20)}}}
	_ = withinBounds(m, headLen)
	if n := testing.AllocsPerRun(20, func() { _ = withinBounds(m, headLen) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
	e := encoder{weigh: true}
	if m.encode(&e); e.bulk != 2<<20 || len(e.b) > 64 {
		t.Errorf("%d bytes are counted and %d written", e.bulk, len(e.b))
	}
}
