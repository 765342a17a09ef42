package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pour is a pipe that gives n records of so many bytes, and notes how many it has given.
type pour struct {
	n, size int
	given   int
	rest    []byte
}

func (p *pour) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		if p.given == p.n {
			return 0, io.EOF
		}
		text := fmt.Sprint(p.given, " ")
		p.rest = []byte(text + strings.Repeat("x", p.size-len(text)) + "\n")
		p.given++
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func lines(t *testing.T) Layout {
	t.Helper()
	return Layout{Format: textFormat{}, Container: Lines}
}

// textFormat is one whose records may stand in lines.
type textFormat struct{ Format }

func (textFormat) String() string { return "text" }
func (textFormat) Text() bool     { return true }
func (textFormat) Framed() bool   { return false }

// A stream gives each record at its offset, again where it is kept, and waits at its end.
func TestPipe(t *testing.T) {
	s := NewPipe(lines(t), io.NopCloser(strings.NewReader("a\n\nb\nc")))
	defer s.Close()
	<-s.Done()
	if n, err := s.End(); n != 3 || err != nil {
		t.Fatalf("%d records, %v", n, err)
	}
	for offset, want := range []string{"[a b c]", "[b c]", "[c]"} {
		records, next, err := s.Fetch(t.Context(), int64(offset))
		if fmt.Sprintf("%s", records) != want || next != 3 || err != nil {
			t.Errorf("from %d: %s up to %d, %v", offset, records, next, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, next, err := s.Fetch(ctx, 3); !errors.Is(err, context.DeadlineExceeded) || next != 3 {
		t.Errorf("behind the end: %d, %v", next, err)
	}
	if s.ID() == NewPipe(lines(t), io.NopCloser(strings.NewReader(""))).ID() {
		t.Error("two streams have one id")
	}
}

// A stream holds a bounded part of what it gave, and of what it will give: who goes too far back is told.
func TestAPipeIsBounded(t *testing.T) {
	const size = 1 << 20
	p := &pour{n: 200, size: size}
	s := NewPipe(lines(t), io.NopCloser(p))
	defer s.Close()
	at := int64(0)
	for at < 200 {
		records, next, err := s.Fetch(t.Context(), at)
		if err != nil || len(records) == 0 || !strings.HasPrefix(string(records[0]), fmt.Sprint(at, " ")) {
			t.Fatalf("at %d: %d records, %v", at, len(records), err)
		}
		at = next
		s.mu.Lock()
		if s.bytes > streamKept+streamAhead+2*size || s.waiting > streamAhead+size {
			t.Errorf("at %d it holds %d bytes, %d of them ahead", at, s.bytes, s.waiting)
		}
		s.mu.Unlock()
	}
	if first := s.First(); first < 200-streamKept/size-10 || first > 200-streamKept/size+10 {
		t.Errorf("it begins at %d", first)
	}
	if _, _, err := s.Fetch(t.Context(), 5); !errors.Is(err, ErrForgotten) {
		t.Errorf("what is gone: %v", err)
	}
	if records, _, err := s.Fetch(t.Context(), 190); err != nil || len(records) == 0 {
		t.Errorf("what is kept: %v", err)
	}
}

// Who closes a stream ends it: a reader that waits for room stops, and what was read stays.
func TestAPipeThatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pour{n: 100, size: 1 << 20}
		s := NewPipe(lines(t), io.NopCloser(p))
		synctest.Wait() // nobody asks for anything, so it waits
		if p.given > streamAhead>>20+2 {
			t.Errorf("%d records were read before anybody asked for one", p.given)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		<-s.Done()
		n, err := s.End()
		if n == 0 || err != nil {
			t.Errorf("%d records, %v", n, err)
		}
		if records, _, err := s.Fetch(t.Context(), n-1); err != nil || len(records) != 1 {
			t.Errorf("the last record: %d, %v", len(records), err)
		}
	})
}

// A stream that breaks off says which record is damaged.
func TestADamagedPipe(t *testing.T) {
	l := lines(t)
	l.Compression = Gzip
	s := NewPipe(l, io.NopCloser(strings.NewReader("no gzip")))
	defer s.Close()
	<-s.Done()
	if n, err := s.End(); n != 0 || !errors.Is(err, ErrDamaged) {
		t.Errorf("%d, %v", n, err)
	}
}
