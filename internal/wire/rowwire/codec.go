package rowwire

import (
	"encoding/binary"
)

var le = binary.LittleEndian

// encoder appends to one buffer; it fails only on what breaks a bound.
type encoder struct {
	b   []byte
	err *Error

	weigh bool // only whether the message fits is of interest: bulk counts its numbers' bytes
	bulk  int
}

// bound fails where the frame is over its bound.
func (e *encoder) bound() {
	if n := len(e.b) - 4 + e.bulk; e.err == nil && n > MaxFrame {
		e.fail("the message has %d bytes, at most %d are allowed: split it", n, MaxFrame)
	}
}

func (e *encoder) fail(format string, args ...any) {
	if e.err == nil {
		e.err = Errorf(Invalid, format, args...)
	}
}

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16) { e.b = le.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = le.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64) { e.b = le.AppendUint64(e.b, v) }
func (e *encoder) i64(v int64)  { e.u64(uint64(v)) }

func (e *encoder) bool(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

func (e *encoder) str(s string) {
	if len(s) > MaxString {
		e.fail("a name has %d bytes, at most %d are allowed: %.40q…", len(s), MaxString, s)
		return
	}
	e.u16(uint16(len(s)))
	e.b = append(e.b, s...)
}

// count writes how many elements follow.
func (e *encoder) count(n, most int, what string) {
	if n > most {
		e.fail("%d %s, at most %d are allowed in one message: split it", n, what, most)
		return
	}
	e.u32(uint32(n))
}

// grow makes room for n bytes and returns them, or nil once the frame is over its bound.
func (e *encoder) grow(n int) []byte {
	at := len(e.b)
	if e.err != nil || n > MaxFrame-at-e.bulk {
		e.fail("the message is over %d bytes: split it", MaxFrame)
		return nil
	}
	if e.weigh {
		e.bulk += n
		return nil
	}
	if cap(e.b)-at < n {
		b := make([]byte, at, max(at+n, 2*cap(e.b)))
		copy(b, e.b)
		e.b = b
	}
	e.b = e.b[:at+n]
	return e.b[at:]
}

func (e *encoder) f32s(v []float32) { put(e, v) }
func (e *encoder) u32s(v []uint32)  { put(e, v) }
func (e *encoder) i64s(v []int64)   { put(e, v) }
func (e *encoder) u64s(v []uint64)  { put(e, v) }

// decoder reads one payload. After the first broken rule every read gives zero, and
// nothing is allocated for a count that the bytes at hand cannot hold.
type decoder struct {
	b   []byte
	err *Error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = Errorf(Invalid, format, args...)
	}
	d.b = nil
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.fail("the message ends early: %d more bytes were announced, %d are there", n, len(d.b))
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) u8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (d *decoder) i64() int64 { return int64(d.u64()) }

func (d *decoder) bool() bool {
	v := d.u8()
	if v > 1 {
		d.fail("a flag is %d, not 0 or 1", v)
	}
	return v == 1
}

// str reads a string, and keeps old instead of a copy when it is the same.
func (d *decoder) str(old string) string {
	n := int(d.u16())
	if n > MaxString {
		d.fail("a name has %d bytes, at most %d are allowed", n, MaxString)
		return ""
	}
	b := d.take(n)
	if string(b) == old {
		return old
	}
	return string(b)
}

// count reads how many elements of at least size bytes each follow.
func (d *decoder) count(most, size int, what string) int {
	n := int(d.u32())
	if n > most {
		d.fail("%d %s, at most %d are allowed in one message: split it", n, what, most)
		return 0
	}
	if n*size > len(d.b) {
		d.fail("%d %s were announced, the message has bytes for %d at most", n, what, len(d.b)/size)
		return 0
	}
	return n
}

// reuse returns n elements, on the memory of s where it suffices.
func reuse[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func (d *decoder) f32s(dst []float32, n int) []float32 { return get(d, dst, n) }
func (d *decoder) u32s(n int) []uint32                 { return get[uint32](d, nil, n) }
func (d *decoder) i64s(dst []int64, n int) []int64     { return get(d, dst, n) }
func (d *decoder) u64s(n int) []uint64                 { return get[uint64](d, nil, n) }

// end reports the first broken rule, bytes left over included.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes are left over behind the message", len(d.b))
	}
	if d.err != nil {
		return d.err
	}
	return nil
}
