package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// lines hands on what is logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default: // more than a test looks at
	}
	return len(p), nil
}

// A follower to which all has come that was sent takes nothing for lost, however long it is quiet.
func TestAnIdleFollowerMissesNothing(t *testing.T) {
	t.Parallel()
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	looks, log := make(chan struct{}, 100), make(lines, 1000)
	relay.Alter(func(message []byte) []byte {
		if bytes.Contains(message, []byte("consumer_info_response")) {
			looks <- struct{}{}
		}
		return message
	})
	b := connect(t, jetstream.Config{URL: relay.URL(), Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	subject := bus.DeltaSubject("bustest", "job", "0")
	if _, err := b.Deltas().Publish(ctx, bus.DeltaDraft{Subject: subject, Expect: bus.Any, Data: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	followed := make(chan error, 1)
	go func() {
		followed <- b.Deltas().Follow(following, 1, 0, []string{subject}, func(bus.StoredDelta) error { return nil })
	}()
	for range 3 { // the second is the first after a quiet interval
		select {
		case <-looks:
		case err := <-followed:
			t.Fatalf("Follow = %v", err)
		}
	}
	stop()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow = %v", err)
	}
	for len(log) > 0 {
		if line := <-log; strings.Contains(line, "messages were sent and") {
			t.Errorf("logged: %s", line)
		}
	}
}
