package jetstream_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

var (
	pending = regexp.MustCompile(`"num_pending":\d+`)
	placed  = regexp.MustCompile(`"leader":"[^"]*"`)
)

// lagging is what a replica answers that has not got the newest messages yet: they are not
// there, and nothing is pending.
func lagging(message []byte) []byte {
	if bytes.Contains(message, []byte("Nats-Sequence: ")) {
		return []byte("NATS/1.0 404 Message Not Found\r\n\r\n")
	}
	return pending.ReplaceAll(message, []byte(`"num_pending":0`))
}

// What a lagging replica does not have yet is neither missed by whoever reads up to the end,
// nor is it said not to exist.
func TestALaggingReplicaHidesNothing(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	relay := natstest.NewRelay(t, c.NodeURL(0))
	b := connect(t, jetstream.Config{URL: relay.URL(), Replicas: 3})
	ctx := t.Context()
	const n = 5
	subject := bus.DeltaSubject("bustest", "job", "0")
	var last, delta uint64
	for i := range n {
		seqs, err := b.Log().Append(ctx, draft("a", fmt.Sprint(i), bus.Any))
		if err != nil {
			t.Fatal(err)
		}
		last = seqs[0]
		if delta, err = b.Deltas().Publish(ctx, bus.DeltaDraft{Subject: subject, Expect: bus.Any, Data: []byte{1}}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.DeadLetters().Park(ctx, bus.Parked{By: "me", Reason: "test", Stream: "MONOLITH", StreamSeq: last, Subject: "s"}); err != nil {
			t.Fatal(err)
		}
	}
	foreign, err := b.Deltas().Publish(ctx, bus.DeltaDraft{Subject: bus.DeltaSubject("bustest", "job", "1"), Expect: bus.Any, Data: []byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	relay.Alter(lagging)
	defer relay.Alter(nil)
	got := 0
	if err := b.Log().Follow(ctx, 1, last, func(events.Recorded) error { got++; return nil }); err != nil || got != n {
		t.Errorf("%d events of %d are followed, %v", got, n, err)
	}
	got = 0
	if err := b.Deltas().Follow(ctx, 1, foreign, []string{subject}, func(bus.StoredDelta) error { got++; return nil }); err != nil || got != n {
		t.Errorf("%d deltas of %d are followed, %v", got, n, err)
	}
	if letters, err := b.DeadLetters().List(ctx); err != nil || len(letters) != n {
		t.Errorf("%d letters of %d are listed, %v", len(letters), n, err)
	}
	if r, err := b.Log().Get(ctx, last); err != nil || r.Seq != last {
		t.Errorf("Get(%d) = %+v, %v", last, r, err)
	}
	if at, err := b.Log().LastOf(ctx, events.Join("crash", "model", "a")); err != nil || at != last {
		t.Errorf("LastOf = %d, %v, want %d", at, err, last)
	}
	if at, err := b.Deltas().LastOf(ctx, subject); err != nil || at != delta {
		t.Errorf("LastOf the deltas = %d, %v, want %d", at, err, delta)
	}
}

// Dead letters are read at their stream's leader, wherever the server first puts the reader:
// another replica may still show what was removed. Where no reader gets there, they are read
// all the same.
func TestLettersAreReadAtTheLeader(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	relay := natstest.NewRelay(t, c.NodeURL(0))
	b := connect(t, jetstream.Config{URL: relay.URL(), Replicas: 3})
	if _, err := b.DeadLetters().Park(t.Context(), bus.Parked{By: "me", Reason: "test", Stream: "MONOLITH", StreamSeq: 1, Subject: "s"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	for _, elsewhere := range []int32{4, math.MaxInt32} { // so many readers are not at the leader
		var made atomic.Int32
		relay.Alter(func(message []byte) []byte {
			if !bytes.Contains(message, []byte("consumer_create_response")) || made.Add(1) > elsewhere {
				return message
			}
			return placed.ReplaceAll(message, []byte(`"leader":"elsewhere"`))
		})
		letters, err := b.DeadLetters().List(ctx)
		relay.Alter(nil)
		if err != nil || len(letters) != 1 {
			t.Errorf("%d letters are listed, %v", len(letters), err)
		}
		if n := made.Load(); n <= min(elsewhere, 15) {
			t.Errorf("%d readers were made, though the first %d are at another replica", n, elsewhere)
		}
	}
}

// A follower that asks for its consumer and hears nothing, because the consumer's server has
// gone, makes a new one.
func TestFollowerOutlivesAConsumerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	var silenced atomic.Bool
	relay.Alter(func(message []byte) []byte {
		if bytes.Contains(message, []byte("consumer_info_response")) && silenced.CompareAndSwap(false, true) {
			return nil
		}
		return message
	})
	defer relay.Alter(nil)
	wanted, other := bus.DeltaSubject("bustest", "job", "0"), bus.DeltaSubject("bustest", "job", "1")
	followed := make(chan error, 1)
	first := make(chan struct{})
	go func() {
		followed <- b.Deltas().Follow(ctx, 1, 3, []string{wanted}, func(bus.StoredDelta) error { close(first); return nil })
	}()
	for i, subject := range []string{wanted, other, other} {
		if _, err := b.Deltas().Publish(ctx, bus.DeltaDraft{Subject: subject, Expect: bus.Any, Data: []byte{1}}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			<-first // that is all the follower gets: it has to ask how far the stream is
		}
	}
	if err := <-followed; err != nil || !silenced.Load() {
		t.Errorf("Follow = %v, an answer was withheld: %t", err, silenced.Load())
	}
}

// A follower whose consumer somebody deletes goes on with another, behind what it has handed on.
func TestFollowerOutlivesItsConsumer(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{Server: s})
	_, js := raw(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	subject := bus.DeltaSubject("bustest", "job", "0")
	publish := func(data byte) {
		t.Helper()
		if _, err := b.Deltas().Publish(ctx, bus.DeltaDraft{Subject: subject, Expect: bus.Any, Data: []byte{data}}); err != nil {
			t.Fatal(err)
		}
	}
	publish(1)
	heard := make(chan byte, 10)
	followed := make(chan error, 1)
	go func() {
		followed <- b.Deltas().Follow(ctx, 1, 0, []string{subject}, func(d bus.StoredDelta) error { heard <- d.Data[0]; return nil })
	}()
	for want := byte(1); want <= 3; want++ {
		select {
		case got := <-heard:
			if got != want {
				t.Fatalf("delta %d came where %d was due", got, want)
			}
		case err := <-followed:
			t.Fatalf("following ended before delta %d: %v", want, err)
		}
		st, err := js.Stream(ctx, "MONOLITH_SYNC")
		if err != nil {
			t.Fatal(err)
		}
		for name := range st.ConsumerNames(ctx).Name() {
			if err := st.DeleteConsumer(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
		publish(want + 1)
	}
	cancel()
	if err := <-followed; err == nil {
		t.Error("following without an end ended well")
	}
}
