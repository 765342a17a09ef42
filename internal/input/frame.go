package input

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Text says whether messages of this format are text that may stand in a line.
func (f Format) Text() bool { return f == JSON }

// Framed says whether messages of this format stand one after the other with their sizes, so that
// a file of them needs nothing else to tell where each ends.
func (f Format) Framed() bool { return f.framing() != unframed }

// ReadFrame appends the next message of a stream to buf, with what frames it, as a [Decoder] of this
// format reads it. The end of the stream is io.EOF before a message and [io.ErrUnexpectedEOF] inside
// of one. A message of more than limit bytes is an error before memory is taken for it.
func (f Format) ReadFrame(r io.Reader, limit int, buf []byte) ([]byte, error) {
	begin := len(buf)
	take := func(n uint64) ([]byte, error) {
		if n > uint64(limit) || len(buf)-begin > limit-int(n) {
			return nil, fmt.Errorf("it would be of %d bytes or more, %d are accepted", n, limit)
		}
		at := len(buf)
		for left := int(n); left > 0; { // in pieces: the size may be a lie
			piece := min(left, 1<<20)
			from := len(buf)
			buf = append(buf, make([]byte, piece)...)
			if got, err := io.ReadFull(r, buf[from:]); err != nil {
				if errors.Is(err, io.EOF) && from+got > begin {
					err = io.ErrUnexpectedEOF
				}
				return nil, err
			}
			left -= piece
		}
		return buf[at:], nil
	}
	number := func() (uint64, error) {
		b, err := take(8)
		if err != nil {
			return 0, err
		}
		return binary.LittleEndian.Uint64(b), nil
	}
	if err := f.readHead(take, number); err != nil {
		return buf, err
	}
	size, err := number()
	if err == nil && size == poisoned {
		err = fmt.Errorf("its size is %#x, which marks what was never written", size)
	}
	if err == nil {
		_, err = take(size)
	}
	return buf, err
}

// readHead takes what stands before the size.
func (f Format) readHead(take func(uint64) ([]byte, error), number func() (uint64, error)) error {
	skip := func(n uint64) error {
		_, err := take(n)
		return err
	}
	switch f.framing() {
	case lagrangeX:
		return skip(8)
	case sortID:
		length, err := number()
		if err != nil {
			return err
		}
		return skip(length)
	case kafkaDump:
		length, err := number()
		if err == nil && length == 0 {
			if err = skip(8); err == nil {
				length, err = number()
			}
		}
		if err == nil {
			err = skip(length)
		}
		if err != nil {
			return err
		}
		return skip(8)
	}
	return nil
}
