// Package wire is ZooKeeper's wire encoding: big-endian numbers, length-prefixed strings
// and buffers, and the records that clients and servers exchange in it.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrMalformed is every decoding error.
var ErrMalformed = errors.New("malformed jute record")

// MaxFrame is ZooKeeper's default jute.maxbuffer: a frame must be shorter.
const MaxFrame = 0xfffff

// Writer appends encoded values; the zero value is empty.
type Writer struct{ B []byte }

// Int32 appends v, as the methods below do with theirs.
func (w *Writer) Int32(v int32) { w.B = binary.BigEndian.AppendUint32(w.B, uint32(v)) }

func (w *Writer) Int64(v int64) { w.B = binary.BigEndian.AppendUint64(w.B, uint64(v)) }

func (w *Writer) Bool(v bool) {
	if v {
		w.B = append(w.B, 1)
		return
	}
	w.B = append(w.B, 0)
}

// Buffer writes nil as absent, which an empty buffer is not.
func (w *Writer) Buffer(v []byte) {
	if v == nil {
		w.Int32(-1)
		return
	}
	w.Int32(int32(len(v)))
	w.B = append(w.B, v...)
}

func (w *Writer) String(v string) {
	w.Int32(int32(len(v)))
	w.B = append(w.B, v...)
}

// Strings writes nil as empty.
func (w *Writer) Strings(v []string) {
	w.Int32(int32(len(v)))
	for _, s := range v {
		w.String(s)
	}
}

// Reader takes values off a frame. The first error sticks; what is read after it is
// zero. Nothing is allocated beyond the bytes that are there.
type Reader struct {
	b   []byte
	err error
}

// NewReader reads b, which buffers alias.
func NewReader(b []byte) *Reader {
	r := new(Reader)
	r.Reset(b)
	return r
}

// Reset has r read b from its beginning.
func (r *Reader) Reset(b []byte) {
	if b == nil {
		b = []byte{}
	}
	*r = Reader{b: b}
}

// Err is the first error, wrapping ErrMalformed.
func (r *Reader) Err() error { return r.err }

// Len is how many bytes are left.
func (r *Reader) Len() int { return len(r.b) }

func (r *Reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	r.b = nil
}

func (r *Reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n > len(r.b) {
		r.fail("%d bytes wanted, %d left", n, len(r.b))
		return nil
	}
	b := r.b[:n:n] // not nil, even if empty: NewReader sees to it
	r.b = r.b[n:]
	return b
}

// Int32 takes the next value off, as the methods below do.
func (r *Reader) Int32() int32 {
	b := r.take(4)
	if b == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

func (r *Reader) Int64() int64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

// Bool takes any byte but zero for true, as Java does.
func (r *Reader) Bool() bool {
	b := r.take(1)
	return b != nil && b[0] != 0
}

// Buffer is nil for an absent one (length -1), and aliases the frame otherwise.
func (r *Reader) Buffer() []byte {
	n := r.Int32()
	if r.err != nil || n == -1 {
		return nil
	}
	if n < -1 {
		r.fail("length %d", n)
		return nil
	}
	return r.take(int(n))
}

// String is "" for an absent one.
func (r *Reader) String() string {
	b := r.Buffer()
	switch string(b) { // what stands in almost every create is not allocated
	case "world":
		return "world"
	case "anyone":
		return "anyone"
	}
	return string(b)
}

// Text is a string that must be there: an absent one is an error.
func (r *Reader) Text() string {
	b := r.Buffer()
	if b == nil && r.err == nil {
		r.fail("an absent string")
	}
	return string(b)
}

// Count is the length of a list whose items take at least size bytes each; 0 for an
// absent list.
func (r *Reader) Count(size int) int {
	n := r.Int32()
	if r.err != nil || n <= 0 {
		if n < -1 {
			r.fail("a list of %d", n)
		}
		return 0
	}
	if int(n) > len(r.b)/size {
		r.fail("a list of %d in %d bytes", n, len(r.b))
		return 0
	}
	return int(n)
}

// Strings is empty for an absent list.
func (r *Reader) Strings() []string {
	n := r.Count(4)
	if n == 0 {
		return nil
	}
	v := make([]string, 0, n)
	for range n {
		v = append(v, r.String())
	}
	if r.err != nil {
		return nil
	}
	return v
}

// ReadFrame reads one length-prefixed frame of less than limit bytes into buf, which
// grows as needed, and returns it.
func ReadFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return buf, err
	}
	return ReadBody(r, buf, limit, binary.BigEndian.Uint32(head[:]))
}

// ReadBody is ReadFrame when the length has already been read.
func ReadBody(r io.Reader, buf []byte, limit int, length uint32) ([]byte, error) {
	if uint64(length) >= uint64(limit) {
		return buf, fmt.Errorf("%w: a frame of %d bytes, fewer than %d are allowed", ErrMalformed, int32(length), limit)
	}
	n := int(length)
	for have := 0; ; { // a length alone gets little room: who claims a large frame must send it
		room := min(n, max(cap(buf), 2*have, onTrust))
		if cap(buf) < room {
			buf = append(make([]byte, 0, room), buf[:have]...)
		}
		buf = buf[:room]
		_, err := io.ReadFull(r, buf[have:])
		if errors.Is(err, io.EOF) && room > have {
			err = io.ErrUnexpectedEOF
		}
		if have = room; err != nil || have == n {
			return buf, err
		}
	}
}

// onTrust is the room for a frame of which nothing has come yet.
const onTrust = 64 << 10

// Frame returns the length-prefixed frame of what the functions write.
func Frame(parts ...func(*Writer)) []byte {
	w := Writer{B: make([]byte, 4, 128)}
	for _, p := range parts {
		p(&w)
	}
	binary.BigEndian.PutUint32(w.B, uint32(len(w.B)-4))
	return w.B
}
