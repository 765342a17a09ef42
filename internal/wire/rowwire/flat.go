package rowwire

import (
	"slices"
	"unsafe"
)

// flat are the numbers that travel in bulk: as they lie in memory on a little-endian
// machine, turned round on others.
type flat interface {
	~uint16 | ~uint32 | ~uint64 | ~int64 | ~float32
}

// bigEndian says that numbers lie the other way round in this machine's memory.
var bigEndian = func() bool { one := uint16(1); return *(*byte)(unsafe.Pointer(&one)) == 0 }()

// asBytes is the memory of v.
func asBytes[T flat](v []T) []byte {
	var x T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(x)))
}

// put appends v.
func put[T flat](e *encoder, v []T) {
	if len(v) == 0 {
		return
	}
	raw := asBytes(v)
	if b := e.grow(len(raw)); b != nil {
		copy(b, raw)
		if bigEndian {
			var x T
			turn(b, int(unsafe.Sizeof(x)))
		}
	}
}

// get reads n numbers, into the memory of dst where that suffices; nil for none.
func get[T flat](d *decoder, dst []T, n int) []T {
	var x T
	b := d.take(n * int(unsafe.Sizeof(x)))
	if len(b) == 0 {
		return dst[:0]
	}
	dst = reuse(dst, n)
	raw := asBytes(dst)
	copy(raw, b)
	if bigEndian {
		turn(raw, int(unsafe.Sizeof(x)))
	}
	return dst
}

// turn reverses each number of size bytes.
func turn(b []byte, size int) {
	for ; len(b) >= size; b = b[size:] {
		slices.Reverse(b[:size])
	}
}

// signed sees b as signed bytes.
func signed(b []byte) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(b))), len(b))
}
