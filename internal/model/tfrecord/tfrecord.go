// Package tfrecord reads and writes TensorFlow's record files: per record the length as
// 8 bytes little endian, its masked CRC-32C, the data, and the data's masked CRC-32C.
package tfrecord

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	headerSize = 12 // length and its checksum
	footerSize = 4
	// chunk bounds what is allocated ahead of the bytes that justify it.
	chunk = 1 << 20
)

// DefaultLimit is the record size that a Reader accepts unless told otherwise.
const DefaultLimit = 64 << 20

var (
	ErrTruncated = errors.New("record file is cut short")
	ErrCorrupt   = errors.New("record file is corrupt")
	ErrTooLarge  = errors.New("record is too large")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Masked is the CRC-32C of data, rotated and offset as TensorFlow stores it.
func Masked(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// Writer appends records to an io.Writer. It does not buffer: give it a bufio.Writer
// and flush that. Not for concurrent use.
type Writer struct {
	w    io.Writer
	head [headerSize]byte
	foot [footerSize]byte
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write appends one record, empty ones included.
func (w *Writer) Write(data []byte) error {
	binary.LittleEndian.PutUint64(w.head[:8], uint64(len(data)))
	binary.LittleEndian.PutUint32(w.head[8:], Masked(w.head[:8]))
	binary.LittleEndian.PutUint32(w.foot[:], Masked(data))
	for _, b := range [][]byte{w.head[:], data, w.foot[:]} {
		if _, err := w.w.Write(b); err != nil {
			return fmt.Errorf("write record: %w", err)
		}
	}
	return nil
}

// Reader reads records from an io.Reader. It does not buffer ahead. Not for concurrent
// use.
type Reader struct {
	r     io.Reader
	limit uint64
	at    uint64 // bytes read
	head  [headerSize]byte
	buf   []byte
	err   error
}

// NewReader returns a Reader from r that refuses records of more than limit bytes;
// limit <= 0 is DefaultLimit.
func NewReader(r io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Reader{r: r, limit: uint64(limit)}
}

// Next returns the next record, valid until the following call. At the end of the file
// it is io.EOF, inside a record ErrTruncated, on a wrong checksum ErrCorrupt, past the
// limit ErrTooLarge; errors of the reader below come through. Errors stay, since what
// follows a broken record cannot be found.
func (r *Reader) Next() ([]byte, error) {
	if r.err == nil {
		r.err = r.next()
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.buf, nil
}

func (r *Reader) next() error {
	start := r.at
	n, err := io.ReadFull(r.r, r.head[:])
	r.at += uint64(n)
	if n == 0 && err == io.EOF {
		return io.EOF
	}
	if err != nil {
		return r.short(start, err)
	}
	size := binary.LittleEndian.Uint64(r.head[:8])
	if binary.LittleEndian.Uint32(r.head[8:]) != Masked(r.head[:8]) {
		return fmt.Errorf("%w: wrong checksum of the length at byte %d", ErrCorrupt, start)
	}
	if size > r.limit {
		return fmt.Errorf("%w: %d bytes at byte %d, %d are accepted", ErrTooLarge, size, start, r.limit)
	}
	if err := r.fill(int(size)); err != nil {
		return r.short(start, err)
	}
	var foot [footerSize]byte
	n, err = io.ReadFull(r.r, foot[:])
	r.at += uint64(n)
	if err != nil {
		return r.short(start, err)
	}
	if binary.LittleEndian.Uint32(foot[:]) != Masked(r.buf) {
		return fmt.Errorf("%w: wrong checksum of the record at byte %d", ErrCorrupt, start)
	}
	return nil
}

// fill reads size bytes into buf, which grows as they come.
func (r *Reader) fill(size int) error {
	r.buf = r.buf[:0]
	for len(r.buf) < size {
		have := len(r.buf)
		want := min(size-have, chunk)
		if cap(r.buf)-have < want {
			bigger := make([]byte, have, max(have+want, min(size, 2*cap(r.buf))))
			copy(bigger, r.buf)
			r.buf = bigger
		}
		r.buf = r.buf[:have+want]
		n, err := io.ReadFull(r.r, r.buf[have:])
		r.at += uint64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) short(start uint64, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it ends at byte %d, inside the record that starts at byte %d", ErrTruncated, r.at, start)
	}
	return fmt.Errorf("read record at byte %d: %w", start, err)
}
