package rowwire

import (
	"math"

	"github.com/monolith-go/monolith/kernels/vec"
)

// Encoding is how the numbers of rows travel. Both ends see float32.
type Encoding uint8

// The encodings. Whatever they are, ids, sequences and dense variables keep every bit.
const (
	FP32 Encoding = iota // every bit
	// FP16 are IEEE 754 halves, 2 bytes a number: 11 significant bits between 2^-14 and
	// 65504, infinite beyond.
	FP16
	// Int8 is a float32 scale per row, the row's greatest absolute value / 127, and a
	// byte a number: the error is at most half a scale, plus 1e-43. A row with a number that is not
	// finite is NaN throughout.
	Int8
	encodings
)

func (e *encoder) encoding(c Encoding) {
	if c >= encodings {
		e.fail("encoding %d is none of 0 (float32), 1 (halves) and 2 (bytes)", c)
		return
	}
	e.u8(uint8(c))
}

func (d *decoder) encoding() Encoding {
	c := Encoding(d.u8())
	if c >= encodings {
		d.fail("encoding %d is none of 0 (float32), 1 (halves) and 2 (bytes)", c)
		return FP32
	}
	return c
}

// rows writes n rows that v is made of, equally long.
func (e *encoder) rows(c Encoding, v []float32, n int) {
	if shapeless(len(v), n) {
		e.fail("%d values are not %d rows", len(v), n)
		return
	}
	e.count(len(v), MaxFrame/4, "values")
	switch {
	case len(v) == 0:
	case c == FP16:
		e.halves(v)
	case c == Int8:
		e.count(n, MaxFrame/4, "rows")
		e.bytes(v, len(v)/n)
	default:
		e.f32s(v)
	}
}

// block is how many numbers are turned into halves, or back, at a time.
const block = 256

func (e *encoder) halves(v []float32) {
	b := e.grow(2 * len(v))
	if b == nil {
		return
	}
	var h [block]uint16
	for len(v) > 0 {
		n := min(len(v), block)
		vec.ToFP16(h[:n], v[:n])
		copy(b, asBytes(h[:n]))
		if bigEndian {
			turn(b[:2*n], 2)
		}
		v, b = v[n:], b[2*n:]
	}
}

func (e *encoder) bytes(v []float32, dim int) {
	b := e.grow(len(v) / dim * (4 + dim))
	if b == nil {
		return
	}
	for ; len(v) > 0; v, b = v[dim:], b[4+dim:] {
		le.PutUint32(b, math.Float32bits(quantize(b[4:4+dim], v[:dim])))
	}
}

// quantize writes row as signed bytes and returns what one of them stands for.
func quantize(dst []byte, row []float32) (scale float32) {
	var most float32
	for _, x := range row {
		if !(x-x == 0) {
			clear(dst)
			return float32(math.NaN())
		}
		most = max(most, x, -x)
	}
	scale = most / 127
	if scale == 0 { // zeros, or so small that their scale is
		clear(dst)
		return 0
	}
	inv := 1 / float64(scale)
	for i, x := range row {
		dst[i] = byte(int8(math.RoundToEven(min(127, max(-127, float64(x)*inv)))))
	}
	return scale
}

// rows reads what encoder.rows has written, into the memory of dst where that suffices,
// and says how many rows an Int8 encoding had.
func (d *decoder) rows(c Encoding, dst []float32) (values []float32, n int) {
	size := [encodings]int{FP32: 4, FP16: 2, Int8: 1}[c]
	count := d.count(MaxFrame/4, size, "values")
	switch {
	case count == 0:
		return dst[:0], 0
	case c == FP16:
		return d.halves(dst, count), 0
	case c == Int8:
		n = d.count(MaxFrame/4, 4, "rows")
		if n == 0 || count%n != 0 {
			d.fail("%d values are not %d rows", count, n)
			return dst[:0], 0
		}
		return d.bytes(dst, count, count/n), n
	}
	return d.f32s(dst, count), 0
}

func (d *decoder) halves(dst []float32, count int) []float32 {
	b := d.take(2 * count)
	if b == nil {
		return dst[:0]
	}
	dst = reuse(dst, count)
	var h [block]uint16
	for v := dst; len(v) > 0; {
		n := min(len(v), block)
		raw := asBytes(h[:n])
		copy(raw, b)
		if bigEndian {
			turn(raw, 2)
		}
		vec.FromFP16(v[:n], h[:n])
		v, b = v[n:], b[2*n:]
	}
	return dst
}

func (d *decoder) bytes(dst []float32, count, dim int) []float32 {
	b := d.take(count / dim * (4 + dim))
	if b == nil {
		return dst[:0]
	}
	dst = reuse(dst, count)
	for v := dst; len(v) > 0; v, b = v[dim:], b[4+dim:] {
		vec.FromInt8Scaled(v[:dim], signed(b[4:4+dim]), math.Float32frombits(le.Uint32(b)))
	}
	return dst
}

// Pack writes n equally long rows as the encoding has them, without counts.
func Pack(c Encoding, v []float32, n int) ([]byte, error) {
	var e encoder
	switch {
	case c >= encodings:
		e.encoding(c)
	case shapeless(len(v), n):
		e.fail("%d values are not %d rows", len(v), n)
	case len(v) == 0:
	case c == FP16:
		e.halves(v)
	case c == Int8:
		e.bytes(v, len(v)/n)
	default:
		e.f32s(v)
	}
	if e.err != nil {
		return nil, e.err
	}
	return e.b, nil
}

// Unpack reads n rows of dim numbers that Pack has written.
func Unpack(c Encoding, b []byte, n, dim int) ([]float32, error) {
	want, d := [encodings]int{FP32: 4 * dim, FP16: 2 * dim, Int8: 4 + dim}, decoder{b: b}
	var v []float32
	switch {
	case c >= encodings:
		return nil, Errorf(Invalid, "encoding %d is none of 0 (float32), 1 (halves) and 2 (bytes)", c)
	case n < 0 || dim < 1 || n > MaxFrame || len(b) != n*want[c]:
		return nil, Errorf(Invalid, "%d bytes are not %d rows of dimension %d in encoding %d", len(b), n, dim, c)
	case n == 0:
	case c == FP16:
		v = d.halves(nil, n*dim)
	case c == Int8:
		v = d.bytes(nil, n*dim, dim)
	default:
		v = d.f32s(nil, n*dim)
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return v, nil
}
