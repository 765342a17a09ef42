package entrydump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
)

// TensorFlow's snappy stream: per block its compressed length, 4 bytes big endian, and
// then one raw snappy block. Records may lie across blocks.
const (
	blockSize  = 256 << 10 // as TensorFlow flushes
	maxBlock   = 16 << 20  // uncompressed: its readers take 10 MiB
	mostDense  = 32        // a raw snappy block does not expand more than this
	frameBytes = 4
)

// framer compresses what is written to it. Flush ends the last block.
type framer struct {
	w   io.Writer
	buf []byte
	out []byte
}

func newFramer(w io.Writer) *framer { return &framer{w: w, buf: make([]byte, 0, blockSize)} }

func (f *framer) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		k := copy(f.buf[len(f.buf):blockSize], b)
		f.buf, b, n = f.buf[:len(f.buf)+k], b[k:], n+k
		if len(f.buf) == blockSize {
			if err := f.Flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// Flush writes what has come since the last block, if anything.
func (f *framer) Flush() error {
	if len(f.buf) == 0 {
		return nil
	}
	if f.out == nil {
		f.out = make([]byte, frameBytes+snappy.MaxEncodedLen(blockSize))
	}
	block := snappy.Encode(f.out[frameBytes:cap(f.out)], f.buf)
	binary.BigEndian.PutUint32(f.out, uint32(len(block)))
	_, err := f.w.Write(f.out[:frameBytes+len(block)])
	f.buf = f.buf[:0]
	return err
}

// unframer decompresses. Lengths are not believed further than bytes have come.
type unframer struct {
	r     io.Reader
	block []byte // compressed
	plain []byte
	left  []byte // of plain
	n     int    // blocks
	err   error
}

func newUnframer(r io.Reader) *unframer { return &unframer{r: r} }

func (u *unframer) Read(b []byte) (int, error) {
	for len(u.left) == 0 {
		if u.err == nil {
			u.err = u.next()
		}
		if u.err != nil {
			return 0, u.err
		}
	}
	n := copy(b, u.left)
	u.left = u.left[n:]
	return n, nil
}

func (u *unframer) next() error {
	var head [frameBytes]byte
	if n, err := io.ReadFull(u.r, head[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return io.EOF
		}
		return u.short(err)
	}
	size := int(binary.BigEndian.Uint32(head[:]))
	if size == 0 || size > snappy.MaxEncodedLen(maxBlock) {
		return fmt.Errorf("%w: snappy block %d has %d bytes, up to %d are accepted", ErrCorrupt, u.n, size, snappy.MaxEncodedLen(maxBlock))
	}
	u.block = u.block[:0]
	for len(u.block) < size { // room grows as the bytes come
		have, want := len(u.block), min(size-len(u.block), blockSize)
		u.block = append(u.block, make([]byte, want)...)
		if _, err := io.ReadFull(u.r, u.block[have:]); err != nil {
			return u.short(err)
		}
	}
	plain, err := snappy.DecodedLen(u.block)
	if err != nil || plain > maxBlock || plain > mostDense*size {
		return fmt.Errorf("%w: snappy block %d of %d bytes claims to hold %d", ErrCorrupt, u.n, size, plain)
	}
	if cap(u.plain) < plain {
		u.plain = make([]byte, plain)
	}
	if u.left, err = snappy.Decode(u.plain[:plain], u.block); err != nil {
		return fmt.Errorf("%w: snappy block %d: %w", ErrCorrupt, u.n, err)
	}
	u.n++
	return nil
}

func (u *unframer) short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends inside snappy block %d", ErrCorrupt, u.n)
	}
	return err
}
