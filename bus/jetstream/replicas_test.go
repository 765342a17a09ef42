package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// A command that is sent again because its ack was lost is found where the leader has it,
// though another replica, which answers direct reads, does not have it yet: it is neither
// stored twice nor taken for somebody else's.
func TestResentCommandIsFoundAtTheLeader(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	begin, err := b.Log().Append(ctx, draft("a", "begin", bus.Any))
	if err != nil {
		t.Fatal(err)
	}
	for name, drafts := range map[string][]bus.Draft{
		"one, guarded":       {draft("g", "guarded", 0)},
		"three":              {draft("b", "b1", bus.Any), draft("c", "c1", bus.Any), draft("b", "b2", bus.Any)},
		"two, behind others": {draft("a", "a1", bus.Any), draft("f", "f1", bus.Any)},
		"three, guarded":     {draft("d", "d1", 0), draft("d", "d2", 0), draft("e", "e1", 0)},
	} {
		stored, err := b.Log().Append(ctx, drafts...)
		if err != nil {
			t.Fatal(err)
		}
		relay.Alter(func(message []byte) []byte { // direct reads are answered by a replica that lags
			if bytes.Contains(message, []byte("Nats-Sequence: ")) {
				return []byte("NATS/1.0 404 Message Not Found\r\n\r\n")
			}
			return message
		})
		again, err := b.Log().Append(ctx, drafts...)
		relay.Alter(nil)
		if err != nil || !slices.Equal(again, stored) {
			t.Errorf("%s: sent again: %v, %v; stored at %v", name, again, err, stored)
		}
	}
	if last, err := b.Log().Last(ctx); err != nil || last != begin[0]+9 {
		t.Errorf("the log ends at %d, %v", last, err)
	}
}

// An ack that is not of all that was sent says nothing of where it stands: it is looked for.
func TestAnAckOfLessThanWasSent(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	if _, err := b.Log().Append(ctx, draft("a", "begin", bus.Any)); err != nil {
		t.Fatal(err)
	}
	var altered atomic.Bool
	relay.Alter(func(message []byte) []byte {
		if full := []byte(`"count":3`); bytes.Contains(message, full) && !altered.Swap(true) {
			return bytes.Replace(message, full, []byte(`"count":2`), 1)
		}
		return message
	})
	seqs, err := b.Log().Append(ctx, draft("b", "b1", bus.Any), draft("c", "c1", bus.Any), draft("b", "b2", bus.Any))
	if err != nil || !slices.Equal(seqs, []uint64{2, 3, 4}) || !altered.Load() {
		t.Errorf("stored at %v, %v; an ack was altered: %t", seqs, err, altered.Load())
	}
}

// What is sent while a cluster elects a leader is never answered: it is sent again once there is one, long before whoever
// waits for an answer gives up.
func TestWhatAnElectionSwallowed(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	if _, err := b.Log().Append(ctx, draft("a", "begin", bus.Any)); err != nil {
		t.Fatal(err)
	}
	var acks, looks atomic.Int64
	relay.Alter(func(message []byte) []byte {
		switch {
		case bytes.Contains(message, []byte("stream_info_response")) && looks.Add(1) == 1, bytes.Contains(message, []byte(`"stream":`)) && acks.Add(1) == 1:
			return nil
		}
		return message
	})
	began := time.Now()
	seqs, err := b.Log().Append(ctx, draft("a", "a1", bus.Any))
	if took := time.Since(began); err != nil || !slices.Equal(seqs, []uint64{2}) || took >= conn.RequestTimeout {
		t.Errorf("stored at %v, %v after %v", seqs, err, took)
	}
	if acks.Load() < 2 || looks.Load() < 2 {
		t.Errorf("%d acks and %d answers of the leader", acks.Load(), looks.Load())
	}
}

// A guarded command that is sent again is found behind its guard: what else its subject has
// held of late is not read.
func TestResentCommandIsFoundByItsGuard(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	var last uint64
	for i := range 20 {
		seqs, err := b.Log().Append(t.Context(), draft("a", fmt.Sprint("earlier-", i), bus.Any))
		if err != nil {
			t.Fatal(err)
		}
		last = seqs[0]
	}
	guarded := draft("a", "guarded", last)
	stored, err := b.Log().Append(t.Context(), guarded)
	if err != nil {
		t.Fatal(err)
	}
	var looked atomic.Int32
	relay.Alter(func(message []byte) []byte {
		if bytes.Contains(message, []byte("stream_msg_get_response")) {
			looked.Add(1)
		}
		return message
	})
	defer relay.Alter(nil)
	if again, err := b.Log().Append(t.Context(), guarded); err != nil || !slices.Equal(again, stored) {
		t.Errorf("sent again: %v, %v; stored at %v", again, err, stored)
	}
	if n := looked.Load(); n != 1 {
		t.Errorf("%d messages were read to find it", n)
	}
}

// A message that this server does not take is refused to whoever wrote it, not to those whose
// messages share its batch.
func TestTooLargeForTheServerIsToldToItsWriterAlone(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true, MaxPayload: 128 << 10})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	b := connect(t, jetstream.Config{URL: s.ClientURL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			for n := range 5 {
				make, large := draft, i%20 == 0
				if large {
					make = bulky
				}
				d := make(fmt.Sprint("a", i), fmt.Sprint(i, "-", n), bus.Any)
				_, err := b.Log().Append(ctx, d)
				if large && !errors.Is(err, bus.ErrTooLarge) || !large && err != nil {
					t.Errorf("%d bytes: %v", proto.Size(d.Event), err)
				}
			}
		})
	}
	wg.Wait()
}
