package jetstream_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// A flipped bit in a block costs nats-server that one message. No reader passes over the gap;
// the error is the one that the operations manual explains.
func TestLostEventIsAnErrorOfEveryReader(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir, 0)
	b := connect(t, jetstream.Config{URL: s.URL()})
	for _, id := range []string{"one", "the damaged one", "three", "four"} {
		if _, err := b.Log().Append(t.Context(), draft("m", id, bus.Any)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "MONOLITH", "msgs", "*.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatalf("blocks %v, %v", blocks, err)
	}
	data, err := os.ReadFile(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte("the damaged one"))
	if at < 0 {
		t.Fatal("the block does not hold the event")
	}
	data[at] ^= 4
	if err := os.WriteFile(blocks[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	b = connect(t, jetstream.Config{URL: startServer(t, dir, 0).URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	for _, until := range []uint64{0, 4} {
		var seen []uint64
		err := b.Log().Follow(ctx, 1, until, func(r events.Recorded) error { seen = append(seen, r.Seq); return nil })
		if err == nil || !strings.Contains(err.Error(), "sequence 3 follows 1") || !strings.Contains(err.Error(), "the stream has lost events") || len(seen) != 1 {
			t.Errorf("until %d: %v after %v", until, err, seen)
		}
	}
}
