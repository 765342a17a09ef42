package bustest

import (
	"errors"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

// testLogTrimmed forgets the log's beginning: readers are told, expected sequences go on holding.
func testLogTrimmed(t *testing.T, b bus.Bus) {
	log := b.Log()
	trim, ok := log.(bus.Trimmer)
	if !ok {
		t.Fatalf("%T is no bus.Trimmer", log)
	}
	quiet, busy := subject(t), subject(t)
	add := func(s events.Subject, expect uint64) (uint64, error) {
		seqs, err := log.Append(ctxOf(t), draft(s, expect, "x"))
		if err != nil {
			return 0, err
		}
		return seqs[0], nil
	}
	must := func(s events.Subject, expect uint64) uint64 {
		t.Helper()
		seq, err := add(s, expect)
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	old := must(quiet, 0)
	gone := must(busy, 0)
	kept := must(busy, gone)
	if err := trim.Trim(ctxOf(t), kept+2); err == nil {
		t.Fatal("events that are not there yet were trimmed")
	}
	forgotten, err := log.Get(ctxOf(t), gone)
	if err != nil {
		t.Fatal(err)
	}
	if cut, err := trim.Cut(ctxOf(t)); err != nil || cut.Seq >= old {
		t.Fatalf("Cut before the Trim = %+v, %v", cut, err)
	}
	if err := trim.KeepIn(ctxOf(t), "/somewhere"); err != nil {
		t.Fatalf("KeepIn: %v", err)
	}
	for range 2 { // the second one finds nothing to forget
		if err := trim.Trim(ctxOf(t), kept); err != nil {
			t.Fatalf("Trim: %v", err)
		}
	}
	cut, err := trim.Cut(ctxOf(t))
	if err != nil || cut.Seq != gone || cut.ID != forgotten.Header.ID || !cut.Time.Equal(forgotten.Time) || cut.Archive != "/somewhere" {
		t.Fatalf("Cut = %+v, %v, want that of %+v", cut, err, forgotten)
	}
	if first, last, err := trim.Span(ctxOf(t)); err != nil || first != kept || last != kept {
		t.Fatalf("Span = %d, %d, %v, want %d twice", first, last, err, kept)
	}
	n := 0
	count := func(events.Recorded) error { n++; return nil }
	if err := log.Follow(ctxOf(t), old, kept, count); !errors.Is(err, bus.ErrTrimmed) || n != 0 {
		t.Fatalf("Follow behind the oldest = %v after %d events", err, n)
	}
	if err := log.Follow(ctxOf(t), kept, kept, count); err != nil || n != 1 {
		t.Fatalf("Follow from the oldest = %v after %d events", err, n)
	}
	_, err = log.Get(ctxOf(t), old)
	wantErr(t, "Get of a trimmed event", err, bus.ErrNotFound)
	// The expected sequence is of an event that is gone, and holds; a stale one does not.
	again := must(quiet, old)
	if again != kept+1 {
		t.Fatalf("the sequence after trimming is %d, want %d", again, kept+1)
	}
	_, err = add(busy, gone)
	wantErr(t, "an expected sequence behind a later event", err, bus.ErrConflict)
	_, err = add(quiet, old)
	wantErr(t, "an expected sequence that was met once", err, bus.ErrConflict)
	if err := trim.Trim(ctxOf(t), again+1); err != nil {
		t.Fatalf("Trim of all: %v", err)
	}
	if first, last, err := trim.Span(ctxOf(t)); err != nil || first != again || last != again {
		t.Fatalf("Span after a Trim of all = %d, %d, %v; the newest, %d, stays", first, last, err, again)
	}
	_, err = add(busy, gone)
	wantErr(t, "a stale expected sequence, all trimmed", err, bus.ErrConflict)
	_, err = add(quiet, 0)
	wantErr(t, "nothing expected where something was trimmed", err, bus.ErrConflict)
	if last, err := log.LastOf(ctxOf(t), quiet); err != nil || last != again {
		t.Fatalf("LastOf a trimmed subject = %d, %v, want %d", last, err, again)
	}
	if last := must(quiet, again); last != again+1 {
		t.Fatalf("after all was trimmed: sequence %d, want %d", last, again+1)
	}
}
