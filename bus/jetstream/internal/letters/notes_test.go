package letters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/bus/jetstream/internal/stream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// A note that somebody else changes meanwhile is made of what it has become, as often as it takes,
// and no longer than the caller waits.
func TestANoteThatOthersChange(t *testing.T) {
	s, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	c, err := conn.Dial(ctx, conn.Config{Server: s, Timeout: wait.Patience, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	notes := jetstream.StreamConfig{Name: wire.NoteStream, Subjects: []string{wire.NoteRoot + ".>"}, MaxMsgsPerSubject: 1}
	if _, err := c.JS.CreateStream(ctx, notes); err != nil {
		t.Fatal(err)
	}
	l, subject := New(c, "bustest", nil), wire.PlaceSubject("bustest", "reaction")
	others := 0
	change := func() error {
		others++
		_, err := l.put(ctx, &nats.Msg{Subject: subject, Data: fmt.Append(nil, "theirs ", others)})
		return err
	}
	err = l.update(ctx, subject, func(old *stream.Message) ([]byte, error) {
		if others < 3 {
			return []byte("of what was before"), change()
		}
		return fmt.Append(nil, "behind ", string(old.Data)), nil
	})
	if m, gerr := l.stream(wire.NoteStream).Ask(ctx, stream.Query{LastFor: subject}); err != nil || gerr != nil || string(m.Data) != "behind theirs 3" {
		t.Errorf("it is %q: %v, %v", m.Data, err, gerr)
	}
	hurried, leave := context.WithCancel(ctx)
	err = l.update(hurried, subject, func(*stream.Message) ([]byte, error) {
		if others++; others == 10 {
			leave()
		}
		return []byte("never"), change()
	})
	if !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("whoever does not wait any longer hears %v", err)
	}
}
