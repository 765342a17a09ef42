package rowwire

import (
	"bufio"
	"io"
	"sync"
)

const (
	opHello   = 1
	opLookup  = 2
	opApply   = 3
	opDense   = 4
	opOffsets = 5
	opScan    = 6
	opCancel  = 7 // client: the request of this id is no longer wanted; no answer

	opResponse = 0x80
	opError    = 0xff

	headLen = 4 + 1 + 8
	keepBuf = 4 << 20 // larger buffers are left to the collector
)

type message interface{ encode(*encoder) }

// buffers are frames on their way; whoever takes one out gives it back.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

func giveBack(b *[]byte) {
	if b != nil && cap(*b) <= keepBuf {
		buffers.Put(b)
	}
}

// frame builds a whole frame in a pooled buffer. timeoutMS stands before the payload of
// requests; negative: none stands there.
func frame(op uint8, id uint64, timeoutMS int64, m message) (*[]byte, error) {
	buf := buffers.Get().(*[]byte)
	e := encoder{b: append((*buf)[:0], make([]byte, headLen)...)}
	if timeoutMS >= 0 {
		e.u32(uint32(min(timeoutMS, 1<<31)))
	}
	if m != nil {
		m.encode(&e)
	}
	*buf = e.b
	e.bound()
	if e.err != nil {
		giveBack(buf)
		return nil, e.err
	}
	le.PutUint32(e.b[0:4], uint32(len(e.b)-4))
	e.b[4] = op
	le.PutUint64(e.b[5:headLen], id)
	return buf, nil
}

// readFrame reads the next frame; payload lies in buf, a pooled buffer of the caller's.
func readFrame(r *bufio.Reader) (op uint8, id uint64, buf *[]byte, payload []byte, err error) {
	var head [headLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, nil, err
	}
	n := int(le.Uint32(head[0:4]))
	if n < headLen-4 || n > MaxFrame {
		return 0, 0, nil, nil, Errorf(Invalid, "a frame of %d bytes: not the row protocol, or over its bound of %d", n, MaxFrame)
	}
	n -= headLen - 4
	buf = buffers.Get().(*[]byte)
	b, err := readInto(r, (*buf)[:0], n)
	*buf = b
	if err != nil {
		giveBack(buf)
		return 0, 0, nil, nil, err
	}
	return head[4], le.Uint64(head[5:]), buf, b, nil
}

// readInto reads n bytes, and takes memory only as they arrive: a length field alone
// costs a stranger nothing.
func readInto(r *bufio.Reader, b []byte, n int) ([]byte, error) {
	const step = 1 << 20
	for len(b) < n {
		at, more := len(b), min(n-len(b), max(step, len(b)))
		if cap(b) < at+more {
			next := make([]byte, at, at+more)
			copy(next, b)
			b = next
		}
		b = b[:at+more]
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return b[:0], err
		}
	}
	return b, nil
}
