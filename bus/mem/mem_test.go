package mem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/bustest"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestContract(t *testing.T) {
	bustest.Run(t, func(t *testing.T) bus.Bus {
		b := mem.New()
		t.Cleanup(func() { b.Close() })
		return b
	})
}

func TestLetters(t *testing.T) {
	bustest.RunLetters(t, func(t *testing.T, limit int64, age time.Duration) bus.Bus {
		options := []mem.Option{mem.LetterAge(age)}
		if limit > 0 {
			options = append(options, mem.LetterLimit(limit))
		}
		b := mem.New(options...)
		t.Cleanup(func() { b.Close() })
		return b
	})
}

// A call's payload is as large as a message, not larger.
func TestLargestCall(t *testing.T) {
	b := mem.New()
	defer b.Close()
	stop, err := b.Commands().Serve(t.Context(), bus.Service{BZID: "t", Name: "echo", Version: "1.0.0", Endpoints: map[string]bus.Handler{
		"size": func(_ context.Context, payload []byte) ([]byte, error) { return fmt.Append(nil, len(payload)), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	got, err := b.Commands().Call(t.Context(), "t", "echo.size", make([]byte, wire.MaxMessage))
	if err != nil || string(got) != fmt.Sprint(wire.MaxMessage) {
		t.Errorf("a call of %d bytes: %s, %v", wire.MaxMessage, got, err)
	}
	if _, err := b.Commands().Call(t.Context(), "t", "echo.size", make([]byte, wire.MaxMessage+1)); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("a larger one: %v", err)
	}
}

// What is not stored yet is not found, be it the very next.
func TestGetOfTheNext(t *testing.T) {
	b := mem.New()
	defer b.Close()
	for n := range uint64(3) {
		if _, err := b.Log().Get(t.Context(), n+1); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("event %d of %d: %v", n+1, n, err)
		}
		if _, err := b.Publish(t.Context(), string(events.Join("t", "model", "m")), nil, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if r, err := b.Log().Get(t.Context(), n+1); err != nil || r.Seq != n+1 {
			t.Errorf("event %d: %+v, %v", n+1, r, err)
		}
	}
}

// A purge counts what it removed itself, not what another one did in its middle.
func TestPurgeBesideAnother(t *testing.T) {
	b := mem.New()
	defer b.Close()
	l := b.DeadLetters()
	for i := range uint64(2) {
		if _, err := l.Park(t.Context(), bus.Parked{Reason: "r", By: "portal", Stream: "csv:x", StreamSeq: i + 1, Subject: "ratings"}); err != nil {
			t.Fatal(err)
		}
	}
	n, err := l.Purge(t.Context(), func(p bus.Parked) bool {
		if p.StreamSeq == 1 {
			if err := l.Remove(t.Context(), p.Seq); err != nil {
				t.Error(err)
			}
		}
		return true
	})
	if err != nil || n != 1 {
		t.Errorf("Purge = %d, %v, want 1", n, err)
	}
}

// A purge of what one namespace was refused leaves what another one of the same owner and
// stream was.
func TestPurgeOfOneNamespacesSummary(t *testing.T) {
	b := mem.New(mem.LetterLimit(64 << 10))
	defer b.Close()
	l := b.DeadLetters()
	another := string(events.Join("another", "model", "m"))
	for _, subject := range []string{"ratings", another} {
		p := bus.Parked{Reason: "r", By: "trainer", Stream: "kafka:ratings/0", StreamSeq: 1, Subject: subject, Data: make([]byte, 30<<10)}
		if seq, err := l.Park(t.Context(), p); err != nil || seq != 0 {
			t.Fatalf("a letter of half of the stream is kept as %d, %v", seq, err)
		}
	}
	if n, err := l.Purge(t.Context(), func(p bus.Parked) bool { return p.Subject == another }); err != nil || n != 1 {
		t.Errorf("Purge = %d, %v, want 1", n, err)
	}
	if all, err := l.List(t.Context()); err != nil || len(all) != 1 || all[0].Subject != "ratings" {
		t.Errorf("the purge left %+v, %v", all, err)
	}
}
