package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Who waits for a lease hears of its end, and asks nobody meanwhile but once a second.
func TestWhoWaitsForALeaseHearsOfItsEnd(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	holder, waiter := connect(t, jetstream.Config{URL: s.URL()}), connect(t, jetstream.Config{URL: s.URL()})
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var asked atomic.Int64
	if _, err := nc.Subscribe("$JS.API.>", func(*nats.Msg) { asked.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	least := time.Hour
	for i := range 5 {
		name := fmt.Sprint("lease-", i)
		_, release, err := holder.Leases().TryAcquire(t.Context(), name, "holder", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		before := asked.Load()
		got := make(chan error, 1)
		go func() {
			_, release, err := waiter.Leases().Acquire(t.Context(), name, "waiter", time.Minute)
			if err == nil {
				release()
			}
			got <- err
		}()
		wait.For(t, "somebody who waits", func() bool { return asked.Load() >= before+3 })
		<-time.After(200 * time.Millisecond)
		if n := asked.Load() - before; n > 30 {
			t.Errorf("%d requests while it waits", n)
		}
		began := time.Now()
		release()
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		least = min(least, time.Since(began))
	}
	if least > 400*time.Millisecond { // a busy machine may be late, but not each time
		t.Errorf("it heard of the end after %v at best", least)
	}
}

// A follower with an end is over once nothing is left to be delivered, and waits for no look at
// the stream, of which there is one a second.
func TestAFollowerOfNothingIsOverAtOnce(t *testing.T) {
	b := connect(t, jetstream.Config{Server: startServer(t, t.TempDir(), 0)})
	for _, shard := range []string{"0", "0", "1"} {
		if _, err := b.Deltas().Publish(t.Context(), bus.DeltaDraft{Subject: bus.DeltaSubject("bustest", "j", shard), Expect: bus.Any, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	for shard, want := range map[string]int{"0": 2, "2": 0} { // behind the last of one stands another's; nothing is the third's
		least := time.Hour
		for range 5 {
			began, n := time.Now(), 0
			err := b.Deltas().Follow(t.Context(), 1, 3, []string{bus.DeltaSubject("bustest", "j", shard)}, func(bus.StoredDelta) error { n++; return nil })
			if err != nil || n != want {
				t.Fatalf("%d deltas of shard %s, %v", n, shard, err)
			}
			least = min(least, time.Since(began))
		}
		if least > 500*time.Millisecond {
			t.Errorf("shard %s: it took %v at best", shard, least)
		}
	}
}

// Whoever does not know yet that the log was trimmed still guards an append by what stood last
// on its subject, and by nothing else.
func TestGuardsOfWhoHasNotHeardOfATrim(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	one, other := connect(t, jetstream.Config{URL: s.URL()}), connect(t, jetstream.Config{URL: s.URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	seqs := map[string]uint64{}
	for _, aggregate := range []string{"a", "b", "b", "c"} {
		got, err := one.Log().Append(ctx, draft(aggregate, fmt.Sprint(aggregate, len(seqs), seqs[aggregate]), bus.Any))
		if err != nil {
			t.Fatal(err)
		}
		seqs[aggregate] = got[0]
	}
	commands := [][]string{{"a", "b"}, {"c"}, {"b", "c"}} // two trimmed guards, one of what is held, one of each
	var unaware []*jetstream.Bus
	for range commands {
		unaware = append(unaware, connect(t, jetstream.Config{URL: s.URL()}))
	}
	if err := other.Log().(bus.Trimmer).Trim(ctx, seqs["c"]); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Log().Append(ctx, draft("b", "an older one", seqs["b"]-1)); err == nil {
		t.Error("a guard of what did not stand last is taken")
	}
	for i, aggregates := range commands {
		for _, b := range []*jetstream.Bus{unaware[i], one} { // one has heard of it by its own refusal
			var command []bus.Draft
			for _, aggregate := range aggregates {
				command = append(command, draft(aggregate, fmt.Sprint("next of ", aggregate, seqs[aggregate]), seqs[aggregate]))
			}
			got, err := b.Log().Append(ctx, command...)
			if err != nil {
				t.Fatalf("%s: %v", aggregates, err)
			}
			for i, aggregate := range aggregates {
				seqs[aggregate] = got[i]
			}
		}
	}
}

// A scan that does not get on is given up after the time of a call, however often it is tried.
func TestAScanThatDoesNotGetOn(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL(), Timeout: time.Second})
	for i, reason := range []string{"one", "two", "the last"} {
		park(t, b, bus.Parked{Reason: reason, By: "portal", Stream: "MONOLITH", StreamSeq: 1 + uint64(i), Subject: "monolith.bustest.model.m"})
	}
	relay.Alter(func(message []byte) []byte {
		if !bytes.Contains(message, []byte("the last")) {
			return message
		}
		relay.Drop()
		return nil
	})
	defer relay.Alter(nil)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	if all, err := b.DeadLetters().List(ctx); !errors.Is(err, bus.ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("%d letters, %v", len(all), err)
	}
}

// A scan that stalls once it has got on goes on, and hands nothing on twice.
func TestAScanThatStallsGoesOn(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL(), Timeout: time.Second})
	reasons := []string{"one", "two", "the last"}
	for i, reason := range reasons {
		park(t, b, bus.Parked{Reason: reason, By: "portal", Stream: "MONOLITH", StreamSeq: 1 + uint64(i), Subject: "monolith.bustest.model.m"})
	}
	var lost atomic.Bool
	relay.Alter(func(message []byte) []byte {
		if bytes.Contains(message, []byte("the last")) && lost.CompareAndSwap(false, true) {
			return nil
		}
		return message
	})
	defer relay.Alter(nil)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	all, err := b.DeadLetters().List(ctx)
	if err != nil || !lost.Load() || len(all) != len(reasons) {
		t.Fatalf("%d letters, %v; one was lost on the way: %t", len(all), err, lost.Load())
	}
	for i, reason := range reasons {
		if all[i].Reason != reason {
			t.Errorf("letter %d is %q", i, all[i].Reason)
		}
	}
}

// A follower that has handled more than the stream has is told so: it is another stream.
func TestAStreamThatWasMadeAnew(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{URL: s.URL()})
	subject := bus.DeltaSubject("bustest", "j", "0")
	for range 3 {
		if _, err := b.Deltas().Publish(t.Context(), bus.DeltaDraft{Subject: subject, Expect: bus.Any, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	err := b.Deltas().Follow(ctx, 1, 0, []string{subject}, func(d bus.StoredDelta) error {
		if d.Seq == 3 {
			_, js := raw(t, s)
			if err := js.DeleteStream(ctx, "MONOLITH_SYNC"); err != nil {
				return err
			}
			connect(t, jetstream.Config{URL: s.URL()}) // makes it
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "sequence 3 was handled and now the stream ends at 0") {
		t.Errorf("%v", err)
	}
}
