package jetstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/internal/testenv/faultnet"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Of several servers one that falls silent, as on a machine that was cut off, is left before whoever
// waits for heartbeats gives up: leases of containers last 3 s, those of trainers as long.
func TestSilentServerIsLeft(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	addr := s.URL()[len("nats://"):]
	relays := make([]*faultnet.Relay, 2)
	for i := range relays { // two ways to one server, so that either has the same streams
		r, err := faultnet.New(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		relays[i] = r
	}
	b := connect(t, jetstream.Config{URL: "nats://" + relays[0].Addr() + ",nats://" + relays[1].Addr()})
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := b.Log().Last(ctx)
		return err
	}
	wait.Until(t, "an answer", ask)
	silent := faultnet.Fault{Mode: faultnet.Hold}
	for _, r := range relays { // the one that it has, whichever that is
		r.Set(silent, silent)
		began := time.Now()
		wait.Until(t, "an answer by the other way", ask)
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("a silent server was left after %v", took)
		}
		r.Heal()
	}
}
