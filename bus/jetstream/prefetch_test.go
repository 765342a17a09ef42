package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Followers of large events ask for a few MiB at a time. If the server sent what a thousand
// of them hold, it would take the connection of a starting role for a slow consumer and cut
// it, and the client would drop what it cannot keep.
func TestFollowersAheadAreBoundedByBytes(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(wait.Patience) {
		t.Fatal("the server does not start")
	}
	log := make(told, 1000)
	b := connect(t, jetstream.Config{URL: s.ClientURL(), Log: slog.New(log)})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	const count, followers, allowed = 450, 4, 4 * 2 * 4 << 20 // of 200 KiB: 88 MiB for each
	for i := range count {
		if _, err := b.Log().Append(ctx, bulky("m", fmt.Sprint(i), bus.Any)); err != nil {
			t.Fatal(err)
		}
	}
	sent := func() int64 {
		v, err := s.Varz(nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.OutBytes
	}
	before := sent()
	hold, done := make(chan struct{}), make(chan error, followers)
	var seen atomic.Int64
	for range followers {
		go func() {
			done <- b.Log().Follow(ctx, 1, count, func(events.Recorded) error {
				seen.Add(1)
				<-hold
				return nil
			})
		}()
	}
	for last, still := int64(-1), 0; still < 10; { // until the server has sent what was asked for
		<-time.After(50 * time.Millisecond)
		if now := sent(); now != last || seen.Load() < followers {
			last, still = now, 0
		} else {
			still++
		}
		if got := sent() - before; got > allowed {
			t.Fatalf("%d MiB are on their way to %d followers, %d are allowed", got>>20, followers, allowed>>20)
		}
	}
	close(hold)
	for range followers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if seen.Load() != count*followers {
		t.Errorf("%d events were handled, want %d", seen.Load(), count*followers)
	}
	select {
	case m := <-log:
		if m != "follower goes on with a new consumer" {
			t.Errorf("logged: %s", m)
		}
	default:
	}
}

// The last event of all is fetched again when it was lost on its way: nothing comes behind
// it by which the gap would show.
func TestLostLastMessageIsFetchedAgain(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	var lost atomic.Int64
	relay.Alter(func(message []byte) []byte {
		if bytes.Contains(message, []byte("the last")) && lost.Add(1) == 1 {
			return nil
		}
		return message
	})
	for _, what := range []string{"one", "two", "the last"} {
		if _, err := b.Log().Append(ctx, draft("m", what, bus.Any)); err != nil {
			t.Fatal(err)
		}
	}
	done := errors.New("enough")
	for _, until := range []uint64{0, 3} {
		lost.Store(0)
		last := uint64(0)
		err := b.Log().Follow(ctx, 1, until, func(r events.Recorded) error {
			if r.Seq != last+1 {
				t.Errorf("%d follows %d", r.Seq, last)
			}
			if last = r.Seq; last == 3 && until == 0 {
				return done
			}
			return nil
		})
		if until == 0 && err != done || until > 0 && err != nil || last != 3 || lost.Load() < 2 {
			t.Errorf("until %d: followed to %d, %v; the last one was sent %d times", until, last, err, lost.Load())
		}
	}
}

// A follower up to a sequence that is stored while it follows hands on every event before
// it: what was the newest one when the server sent it need not be the last.
func TestFollowUntilWhatIsYetToBeStored(t *testing.T) {
	b := connect(t, jetstream.Config{URL: startServer(t, t.TempDir(), 0).URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	store := func(text string) uint64 {
		seqs, err := b.Log().Append(ctx, draft("a", text, bus.Any))
		if err != nil {
			t.Fatal(err)
		}
		return seqs[0]
	}
	const more = 5
	from := store("first")
	began, goOn := make(chan struct{}), make(chan struct{})
	n, followed := 0, make(chan error, 1)
	go func() {
		followed <- b.Log().Follow(ctx, from, from+more, func(events.Recorded) error {
			if n++; n == 1 {
				close(began)
				<-goOn
			}
			return nil
		})
	}()
	<-began
	for i := range more { // each is sent at once, as the newest
		store(fmt.Sprint("more ", i))
	}
	late := time.AfterFunc(2*time.Second, func() { close(goOn) }) // the follower looks at the stream every second
	defer late.Stop()
	if err := <-followed; err != nil || n != 1+more {
		t.Errorf("%d events were handed on, want %d, and %v", n, 1+more, err)
	}
}

// A consumer hears of what is stored a moment after the stream has it. What it does not
// know of yet is not taken for passed over.
func TestFollowerWaitsForAConsumerThatLags(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	var withheld, lagged atomic.Int64
	relay.Alter(func(message []byte) []byte {
		if bytes.Contains(message, []byte("the late one")) && withheld.Add(1) == 1 {
			return nil
		}
		knows := []byte(`"delivered":{"consumer_seq":2`)
		if bytes.Contains(message, knows) && lagged.Add(1) == 1 {
			return bytes.Replace(message, knows, []byte(`"delivered":{"consumer_seq":1`), 1)
		}
		return message
	})
	store := func(text string) {
		if _, err := b.Deltas().Publish(ctx, bus.DeltaDraft{Subject: bus.DeltaSubject("bustest", "j", "0"), ID: text, Expect: bus.Any, Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	store("one")
	done, first := errors.New("enough"), make(chan struct{})
	followed := make(chan error, 1)
	go func() {
		followed <- b.Deltas().Follow(ctx, 1, 0, []string{bus.DeltaSubject("bustest", "j", "*")}, func(d bus.StoredDelta) error {
			switch d.Seq {
			case 1:
				close(first)
			case 2:
				return done
			}
			return nil
		})
	}()
	<-first
	store("the late one")
	if err := <-followed; err != done || lagged.Load() == 0 {
		t.Errorf("Follow = %v; what is stored was handed on only if it is %v; the consumer lagged %t", err, done, lagged.Load() > 0)
	}
}

// A follower of some subjects up to a sequence that is stored while it follows ends there, though that one is
// on none of them: nothing comes that says so.
func TestFollowUntilWhatIsOfOthers(t *testing.T) {
	b := connect(t, jetstream.Config{URL: startServer(t, t.TempDir(), 0).URL()})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	store := func(job string) uint64 {
		t.Helper()
		seq, err := b.Deltas().Publish(ctx, bus.DeltaDraft{Subject: bus.DeltaSubject("bustest", job, "0"), Expect: bus.Any, Data: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	from := store("j")
	first, followed := make(chan struct{}), make(chan error, 1)
	go func() {
		followed <- b.Deltas().Follow(ctx, from, from+1, []string{bus.DeltaSubject("bustest", "j", "*")}, func(d bus.StoredDelta) error {
			if d.Seq != from {
				t.Errorf("delta %d was handed on", d.Seq)
			}
			close(first)
			return nil
		})
	}()
	<-first
	store("other")
	if err := <-followed; err != nil {
		t.Errorf("Follow = %v", err)
	}
}
