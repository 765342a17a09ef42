package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
)

// maxSnappy bounds a block, and what one chunk of it becomes.
const maxSnappy = 256 << 20

// mostDense is more than a raw snappy block can expand by.
const mostDense = 32

// unsnappy reads Hadoop's block stream: the length of a block, then its chunks, each behind its packed length and
// by itself a raw snappy block, until they have that length. Lengths are of 4 bytes, big endian.
type unsnappy struct {
	r      io.Reader
	left   int // of the block, unpacked
	packed bytes.Buffer
	plain  []byte
	rest   []byte // of plain
}

func (u *unsnappy) Read(b []byte) (int, error) {
	for len(u.rest) == 0 {
		if err := u.chunk(); err != nil {
			return 0, err
		}
	}
	n := copy(b, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// chunk unpacks the next one; io.EOF behind the last block.
func (u *unsnappy) chunk() error {
	for u.left == 0 {
		n, err := u.length()
		if err != nil {
			return err
		}
		u.left = n
	}
	n, err := u.length()
	if err != nil {
		return cut(err)
	}
	u.packed.Reset()
	if _, err := io.CopyN(&u.packed, u.r, int64(n)); err != nil { // whose memory grows with what comes
		return cut(err)
	}
	size, err := snappy.DecodedLen(u.packed.Bytes())
	if err != nil || size > u.left || size > mostDense*n {
		return fmt.Errorf("a chunk of %d bytes unpacks to %d, where %d are left of its block: %w", n, size, u.left, errors.Join(snappy.ErrCorrupt, err))
	}
	if u.plain, err = snappy.Decode(u.plain[:cap(u.plain)], u.packed.Bytes()); err != nil {
		return err
	}
	u.rest, u.left = u.plain, u.left-size
	return nil
}

func (u *unsnappy) length() (int, error) {
	var b [4]byte
	if _, err := io.ReadFull(u.r, b[:]); err != nil {
		return 0, err
	}
	if n := binary.BigEndian.Uint32(b[:]); n <= maxSnappy {
		return int(n), nil
	}
	return 0, fmt.Errorf("a block has more than %d bytes: is it packed in Hadoop's way?", maxSnappy)
}

// cut is an end in the middle of a block.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
