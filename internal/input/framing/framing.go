// Package framing reads what Monolith's streams have before each message: its size of 8 bytes, and other things
// before that.
package framing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Kind is what stands before the size.
type Kind uint8

const (
	None      Kind = iota // not even a size: a record is one message
	Framed                // nothing
	LagrangeX             // 8 bytes
	SortID                // the length of an id, 8 bytes, and the id
	KafkaDump             // 8 bytes, and 8 more where they are 0; a sort id, of that length where they are not; 8 bytes
)

var names = []string{"", "framed", "lagrangex", "sort-id", "kafka-dump"}

// Kinds is how many there are.
const Kinds = Kind(5)

func (k Kind) String() string { return names[k] }

// What a stream has at a place that was never written.
const poisoned = 0xfefefefe

var errCut = errors.New("it is cut short")

// Next takes the first message off a record that frames several.
func (k Kind) Next(b []byte) (message, rest []byte, err error) {
	message, err = k.message(func(n uint64) ([]byte, error) {
		if n > uint64(len(b)) {
			return nil, errCut
		}
		head := b[:n]
		b = b[n:]
		return head, nil
	})
	return message, b, err
}

// Read appends the next message of a stream to buf, with what frames it, as [Kind.Next] takes it off. The end of
// the stream is io.EOF before a message and [io.ErrUnexpectedEOF] inside of one. A message of more than limit bytes
// is an error before memory is taken for it.
func (k Kind) Read(r io.Reader, limit int, buf []byte) ([]byte, error) {
	begin := len(buf)
	_, err := k.message(func(n uint64) ([]byte, error) {
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
	})
	return buf, err
}

// message takes a message and what frames it.
func (k Kind) message(take func(n uint64) ([]byte, error)) ([]byte, error) {
	if err := k.head(take); err != nil {
		return nil, err
	}
	size, err := number(take)
	if err == nil && size == poisoned {
		err = fmt.Errorf("its size is %#x, which marks what was never written", size)
	}
	if err != nil {
		return nil, err
	}
	return take(size)
}

// head takes what stands before the size.
func (k Kind) head(take func(n uint64) ([]byte, error)) error {
	var err error
	length := uint64(8)
	switch k {
	case LagrangeX:
	case SortID:
		length, err = number(take)
	case KafkaDump:
		if length, err = number(take); err == nil && length == 0 {
			if _, err = take(8); err == nil {
				length, err = number(take)
			}
		}
		if err == nil {
			_, err = take(length)
		}
		length = 8
	default:
		return nil
	}
	if err == nil {
		_, err = take(length)
	}
	return err
}

func number(take func(n uint64) ([]byte, error)) (uint64, error) {
	b, err := take(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}
