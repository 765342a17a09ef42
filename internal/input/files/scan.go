package files

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
)

// scanner reads the records of one stream of bytes in order.
type scanner struct {
	layout  Layout
	lines   *bufio.Reader
	tf      *tfrecord.Reader
	counted *counted
	close   func()
	buf     []byte
}

// counted is how many bytes were read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

const readBuffer = 256 << 10

// scan begins to read records. Close it.
func (l Layout) scan(r io.Reader, packed Compression) (*scanner, error) {
	s := &scanner{layout: l, close: func() {}}
	var err error
	switch packed {
	case Gzip:
		r, err = gzip.NewReader(bufio.NewReaderSize(r, readBuffer))
	case Zlib:
		r, err = zlib.NewReader(bufio.NewReaderSize(r, readBuffer))
	case Snappy:
		r = &unsnappy{r: bufio.NewReaderSize(r, readBuffer)}
	case Zstd:
		var d *zstd.Decoder
		d, err = zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
		if err == nil {
			r, s.close = d, d.Close
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: it is not packed with %s: %w", ErrDamaged, packed, err)
	}
	s.counted = &counted{r: r}
	s.lines = bufio.NewReaderSize(s.counted, readBuffer)
	if l.Container == TFRecord {
		s.tf = tfrecord.NewReader(s.lines, MaxRecord)
	}
	return s, nil
}

// at is the byte of the unpacked stream behind the record that was read last.
func (s *scanner) at() int64 { return s.counted.n - int64(s.lines.Buffered()) }

// next is the next record, valid until the following call, or io.EOF behind the last one.
func (s *scanner) next() (record []byte, err error) {
	switch s.layout.Container {
	case TFRecord:
		record, err = s.tf.Next()
	case Stream:
		s.buf, err = s.layout.Format.ReadFrame(s.lines, MaxRecord, s.buf[:0])
		record = s.buf
	default:
		record, err = s.line()
	}
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return record, err
	}
	return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
}

// line is the next one that holds anything.
func (s *scanner) line() ([]byte, error) {
	for {
		s.buf = s.buf[:0]
		for {
			piece, err := s.lines.ReadSlice('\n')
			if len(s.buf)+len(piece) > MaxRecord {
				return nil, fmt.Errorf("the line has more than %d bytes", MaxRecord)
			}
			s.buf = append(s.buf, piece...)
			if err == nil || errors.Is(err, io.EOF) && len(s.buf) > 0 {
				break // the last line may lack its end
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return nil, err
			}
		}
		if line := bytes.TrimSpace(s.buf); len(line) > 0 {
			return line, nil
		}
	}
}
