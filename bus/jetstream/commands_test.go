package jetstream_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream"
)

// A handler has as long as its caller waits, if that says so in a way that makes sense: two
// minutes for a large shard's checkpoint, and never longer than five; else 30 s.
func TestHandlersAreBounded(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{Server: s})
	deadlines := make(chan time.Time, 1)
	stop, err := b.Commands().Serve(t.Context(), bus.Service{BZID: "t", Name: "clock", Version: "1.0.0", Endpoints: map[string]bus.Handler{
		"left": func(ctx context.Context, _ []byte) ([]byte, error) {
			deadline, _ := ctx.Deadline()
			deadlines <- deadline
			return nil, nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	nc, _ := raw(t, s)
	const usual, longest = 30 * time.Second, 5 * time.Minute
	for says, want := range map[string]time.Duration{"": usual, "0s": usual, "-1s": usual, "soon": usual, "1h": longest, "2m": 2 * time.Minute, "20s": 20 * time.Second} {
		m := &nats.Msg{Subject: "monolith.t.cmd.clock.left", Header: nats.Header{"monolith-timeout": {says}}}
		asked := time.Now()
		if _, err := nc.RequestMsgWithContext(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		answered := time.Now()
		if got := <-deadlines; got.Before(asked.Add(want)) || got.After(answered.Add(want)) {
			t.Errorf("%q: the deadline is %v after the question and %v after the answer, want %v", says, got.Sub(asked), got.Sub(answered), want)
		}
	}
}

// An answer that is just as long as a message may be is sent, and a longer one becomes a refusal.
func TestHowLongAnswersAre(t *testing.T) {
	b := connect(t, jetstream.Config{Server: startServer(t, t.TempDir(), 0)})
	stop, err := b.Commands().Serve(t.Context(), bus.Service{BZID: "t", Name: "zeros", Version: "1.0.0", Endpoints: map[string]bus.Handler{
		"of": func(_ context.Context, n []byte) ([]byte, error) {
			size, err := strconv.Atoi(string(n))
			return make([]byte, size), err
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if got, err := b.Commands().Call(t.Context(), "t", "zeros.of", strconv.AppendInt(nil, wire.MaxMessage, 10)); err != nil || len(got) != wire.MaxMessage {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	var refused *bus.CommandError
	if _, err := b.Commands().Call(t.Context(), "t", "zeros.of", strconv.AppendInt(nil, wire.MaxMessage+1, 10)); !errors.As(err, &refused) || refused.Code != bus.CodeInternal {
		t.Errorf("an answer of a byte more: %v", err)
	}
}
