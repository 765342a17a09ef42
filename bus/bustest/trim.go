package bustest

import (
	"errors"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

// testLogTrimmed forgets the log's beginning: readers are told, expected sequences go on holding.
func testLogTrimmed(t *testing.T, b bus.Bus) {
	trim, ok := b.Log().(bus.Trimmer)
	if !ok {
		t.Fatalf("%T is no bus.Trimmer", b.Log())
	}
	l := &trimmed{log: b.Log(), trim: trim, quiet: subject(t), busy: subject(t)}
	l.old = l.must(t, l.quiet, 0)
	l.gone = l.must(t, l.busy, 0)
	l.kept = l.must(t, l.busy, l.gone)
	l.forgets(t)
	l.tellsReaders(t)
	l.goesOn(t)
}

// trimmed is a log with two events that are forgotten, of a quiet subject and of a busy one,
// and one that is kept.
type trimmed struct {
	log             bus.Log
	trim            bus.Trimmer
	quiet, busy     events.Subject
	old, gone, kept uint64
}

func (l *trimmed) add(t *testing.T, s events.Subject, expect uint64) (uint64, error) {
	seqs, err := l.log.Append(ctxOf(t), draft(s, expect, "x"))
	if err != nil {
		return 0, err
	}
	return seqs[0], nil
}

func (l *trimmed) must(t *testing.T, s events.Subject, expect uint64) uint64 {
	t.Helper()
	seq, err := l.add(t, s, expect)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// forgets trims up to the kept event, twice.
func (l *trimmed) forgets(t *testing.T) {
	if err := l.trim.Trim(ctxOf(t), l.kept+2); err == nil {
		t.Fatal("events that are not there yet were trimmed")
	}
	forgotten, err := l.log.Get(ctxOf(t), l.gone)
	if err != nil {
		t.Fatal(err)
	}
	if cut, err := l.trim.Cut(ctxOf(t)); err != nil || cut.Seq >= l.old {
		t.Fatalf("Cut before the Trim = %+v, %v", cut, err)
	}
	if err := l.trim.KeepIn(ctxOf(t), "/somewhere"); err != nil {
		t.Fatalf("KeepIn: %v", err)
	}
	for range 2 { // the second one finds nothing to forget
		if err := l.trim.Trim(ctxOf(t), l.kept); err != nil {
			t.Fatalf("Trim: %v", err)
		}
	}
	cut, err := l.trim.Cut(ctxOf(t))
	if err != nil || cut.Seq != l.gone || cut.ID != forgotten.Header.ID || !cut.Time.Equal(forgotten.Time) || cut.Archive != "/somewhere" {
		t.Fatalf("Cut = %+v, %v, want that of %+v", cut, err, forgotten)
	}
	if first, last, err := l.trim.Span(ctxOf(t)); err != nil || first != l.kept || last != l.kept {
		t.Fatalf("Span = %d, %d, %v, want %d twice", first, last, err, l.kept)
	}
}

func (l *trimmed) tellsReaders(t *testing.T) {
	n := 0
	count := func(events.Recorded) error { n++; return nil }
	if err := l.log.Follow(ctxOf(t), l.old, l.kept, count); !errors.Is(err, bus.ErrTrimmed) || n != 0 {
		t.Fatalf("Follow behind the oldest = %v after %d events", err, n)
	}
	if err := l.log.Follow(ctxOf(t), l.kept, l.kept, count); err != nil || n != 1 {
		t.Fatalf("Follow from the oldest = %v after %d events", err, n)
	}
	_, err := l.log.Get(ctxOf(t), l.old)
	wantErr(t, "Get of a trimmed event", err, bus.ErrNotFound)
}

// goesOn appends with expected sequences of events that are gone, which hold; stale ones do
// not, also where everything is trimmed.
func (l *trimmed) goesOn(t *testing.T) {
	again := l.must(t, l.quiet, l.old)
	if again != l.kept+1 {
		t.Fatalf("the sequence after trimming is %d, want %d", again, l.kept+1)
	}
	_, err := l.add(t, l.busy, l.gone)
	wantErr(t, "an expected sequence behind a later event", err, bus.ErrConflict)
	_, err = l.add(t, l.quiet, l.old)
	wantErr(t, "an expected sequence that was met once", err, bus.ErrConflict)
	if err := l.trim.Trim(ctxOf(t), again+1); err != nil {
		t.Fatalf("Trim of all: %v", err)
	}
	if first, last, err := l.trim.Span(ctxOf(t)); err != nil || first != again || last != again {
		t.Fatalf("Span after a Trim of all = %d, %d, %v; the newest, %d, stays", first, last, err, again)
	}
	_, err = l.add(t, l.busy, l.gone)
	wantErr(t, "a stale expected sequence, all trimmed", err, bus.ErrConflict)
	_, err = l.add(t, l.quiet, 0)
	wantErr(t, "nothing expected where something was trimmed", err, bus.ErrConflict)
	if last, err := l.log.LastOf(ctxOf(t), l.quiet); err != nil || last != again {
		t.Fatalf("LastOf a trimmed subject = %d, %v, want %d", last, err, again)
	}
	if last := l.must(t, l.quiet, again); last != again+1 {
		t.Fatalf("after all was trimmed: sequence %d, want %d", last, again+1)
	}
}
