package jetstream_test

import (
	"errors"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream"
)

// A command of which only the second event is stored, alone and as the first of the log, is
// no command that is stored: the ids are somebody else's.
func TestPartOfACommandIsNoCommand(t *testing.T) {
	b := connect(t, jetstream.Config{Server: startServer(t, t.TempDir(), 0)})
	second := draft("b", "second", 0)
	if seqs, err := b.Log().Append(t.Context(), second); err != nil || seqs[0] != 1 {
		t.Fatalf("%v, %v", seqs, err)
	}
	for _, expect := range []uint64{0, bus.Any} {
		if seqs, err := b.Log().Append(t.Context(), draft("a", "first", expect), second); !errors.Is(err, wire.ErrRepeated) {
			t.Errorf("Append of a command whose second event is stored, the first is guarded by %d: %v, %v", expect, seqs, err)
		}
	}
}

// Nor is one of which only the first event is stored, before somebody else's.
func TestTheBeginningOfACommandIsNoCommand(t *testing.T) {
	b := connect(t, jetstream.Config{Server: startServer(t, t.TempDir(), 0)})
	for _, d := range []bus.Draft{draft("a", "first", 0), draft("c", "another", 0)} {
		if _, err := b.Log().Append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	for _, expect := range []uint64{0, bus.Any} {
		if seqs, err := b.Log().Append(t.Context(), draft("a", "first", expect), draft("b", "second", expect)); !errors.Is(err, wire.ErrRepeated) {
			t.Errorf("Append of a command whose first event is stored, guarded by %d: %v, %v", expect, seqs, err)
		}
	}
}
