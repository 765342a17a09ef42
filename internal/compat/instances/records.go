// Package instances is samples as clients of Monolith's model servers send them: records of
// Instance and ExampleBatch messages in their framings, the text forms that people write them
// in, what one becomes as the other, and random ones.
package instances

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Framing says what stands before the size of each record: nothing, 8 bytes of LagrangeX and
// none of the others, or in this order those of Kafka's dump, a sort id, and 8 bytes more.
type Framing struct {
	LagrangeX       bool
	KafkaDumpPrefix bool
	SortID          bool
	KafkaDump       bool
}

// MaxRecord bounds a record that is read.
const MaxRecord = 64 << 20

// poisoned is the size that stands at a place of a stream that was never written.
const poisoned = 0xfefefefe

// Read returns the next record of a stream. Its end is io.EOF before a record, and
// io.ErrUnexpectedEOF within one.
func (f Framing) Read(r io.Reader) ([]byte, error) {
	started := false
	number := func() (n uint64, err error) {
		var b [8]byte
		got, err := io.ReadFull(r, b[:])
		if errors.Is(err, io.EOF) && (started || got > 0) {
			err = io.ErrUnexpectedEOF
		}
		started = true
		return binary.LittleEndian.Uint64(b[:]), err
	}
	if err := f.readHead(r, number); err != nil {
		return nil, err
	}
	size, err := number()
	if err != nil {
		return nil, err
	}
	if size == poisoned {
		return nil, fmt.Errorf("a record's size is %#x, which marks what was never written", size)
	}
	return take(r, size)
}

func (f Framing) readHead(r io.Reader, number func() (uint64, error)) error {
	if f.LagrangeX {
		_, err := number()
		return err
	}
	length := uint64(0)
	if f.KafkaDumpPrefix {
		var err error
		if length, err = number(); err == nil && length == 0 {
			_, err = number()
		}
		if err != nil {
			return err
		}
	}
	if f.SortID {
		var err error
		if length == 0 {
			length, err = number()
		}
		if err == nil {
			_, err = take(r, length)
		}
		if err != nil {
			return err
		}
	}
	if f.KafkaDump {
		_, err := number()
		return err
	}
	return nil
}

// take reads n bytes, and takes memory only for those that come: the size may be a lie.
func take(r io.Reader, n uint64) ([]byte, error) {
	if n > MaxRecord {
		return nil, fmt.Errorf("a record would have %d bytes, at most %d are read: is the stream framed in another way?", n, MaxRecord)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b.Bytes(), nil
}

// Append adds a record to a stream as the original's writer does, with an empty sort id.
func (f Framing) Append(dst, record []byte) []byte {
	head := 0
	if f.LagrangeX {
		head = 8
	} else {
		for _, part := range []struct {
			there bool
			bytes int
		}{{f.KafkaDumpPrefix, 16}, {f.SortID, 8}, {f.KafkaDump, 8}} {
			if part.there {
				head += part.bytes
			}
		}
	}
	dst = append(dst, make([]byte, head)...)
	return append(binary.LittleEndian.AppendUint64(dst, uint64(len(record))), record...)
}
