package files

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
)

// What a stream keeps of what was read.
const (
	streamAhead = 8 << 20  // bytes at most before somebody asks for them
	streamKept  = 64 << 20 // bytes at most behind that, for who goes back a little
)

// ErrForgotten says that a record of a stream was asked for again which is no longer kept: a stream is
// read once.
var ErrForgotten = errors.New("what a pipe gave cannot be read again")

// Pipe is the records of a pipe, in their order. They are read once; the latest are kept, so that a
// step that failed, or a shard that came back, finds them again.
type Pipe struct {
	id     string
	from   io.ReadCloser
	layout Layout

	mu      sync.Mutex // guards all below
	changed chan struct{}
	records [][]byte
	first   int64 // the offset of the first of them
	bytes   int
	wanted  int64 // the highest offset that was asked for
	waiting int   // bytes of the records from wanted on
	ended   bool
	err     error // why, if it is not its end
	closed  bool
	done    chan struct{} // closed once nothing is read any more
}

// NewPipe begins to read records. Nothing reads from beside it; Close closes it.
func NewPipe(layout Layout, from io.ReadCloser) *Pipe {
	s := &Pipe{id: "stdin-" + rand.Text(), from: from, layout: layout, changed: make(chan struct{}), done: make(chan struct{})}
	go s.read()
	return s
}

// ID tells this stream from every other one: nobody can bring its records back.
func (s *Pipe) ID() string { return s.id }

// Done is closed once everything was read, or nothing more can be.
func (s *Pipe) Done() <-chan struct{} { return s.done }

// End is how many records were read, and why there will be no more where that is not the stream's end.
func (s *Pipe) End() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first + int64(len(s.records)), s.err
}

// First is the offset of the oldest record that is kept.
func (s *Pipe) First() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

// Close ends the stream behind the records that were read.
func (s *Pipe) Close() error {
	s.mu.Lock()
	s.closed = true
	s.tell()
	s.mu.Unlock()
	return s.from.Close()
}

// tell wakes those who wait. The caller holds mu.
func (s *Pipe) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Pipe) read() {
	defer close(s.done)
	scan, err := s.layout.scan(s.from, s.layout.Compression.of(""))
	if err == nil {
		defer scan.close()
	}
	for n := int64(0); err == nil; n++ {
		var record []byte
		if record, err = scan.next(); err == nil && !s.take(bytes.Clone(record)) {
			err = io.EOF
		} else if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("record %d: %w", n, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended = true; !s.closed && (!errors.Is(err, io.EOF) || errors.Is(err, ErrDamaged)) {
		s.err = err
	}
	s.tell()
}

// take keeps a record, once there is room for it; false: the stream is closed.
func (s *Pipe) take(record []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting > streamAhead && !s.closed {
		changed := s.changed
		s.mu.Unlock()
		<-changed
		s.mu.Lock()
	}
	if s.closed {
		return false
	}
	s.records = append(s.records, record)
	s.bytes += len(record)
	s.waiting += len(record)
	for s.bytes-s.waiting > streamKept {
		s.bytes -= len(s.records[0])
		s.records[0] = nil
		s.records, s.first = s.records[1:], s.first+1
	}
	s.tell()
	return true
}

// Fetch returns the records from offset on, those that one call brings, and the offset behind them. It
// waits for some where there are none yet, and behind the last one until ctx ends.
func (s *Pipe) Fetch(ctx context.Context, offset int64) (records [][]byte, next int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for offset >= s.first+int64(len(s.records)) {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
			err = nil
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		if err != nil {
			return nil, offset, err
		}
	}
	if offset < s.first {
		return nil, offset, fmt.Errorf("%w: record %d was asked for, the %d before record %d are gone", ErrForgotten, offset, s.first, s.first)
	}
	for size := 0; len(records) < fetchRecords && size < fetchBytes; {
		at := offset + int64(len(records)) - s.first
		if at == int64(len(s.records)) {
			break
		}
		size += len(s.records[at])
		records = append(records, s.records[at])
	}
	next = offset + int64(len(records))
	for ; s.wanted < next; s.wanted++ {
		s.waiting -= len(s.records[s.wanted-s.first])
	}
	s.tell()
	return records, next, nil
}
