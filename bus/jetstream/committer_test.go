package jetstream

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Writes without an ack stay a problem when their callers have given up: nothing was acked.
func TestCallersThatHaveGoneAckNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well := health.New()
		c := newCommitter(&Bus{cfg: Config{Health: well}}, "LOG")
		c.unwell = true
		well.Fail("LOG", errUnanswered)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.run(ctx)
		}()
		c.queue.In() <- commandOf(gone, "a")
		synctest.Wait()
		if got := well.Summary(); !strings.Contains(got, "LOG") {
			t.Errorf("the problem is over: %q", got)
		}
		stop()
		<-ended
	})
}

// connected is a bus on a server of its own.
func connected(ctx context.Context, t *testing.T) *Bus {
	t.Helper()
	s, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b, err := Connect(ctx, Config{Server: s, BZID: "bustest", Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// How many callers the next batch waits for is how many there were in this one and behind it.
func TestCallersOfABatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	c := newCommitter(connected(ctx, t), wire.LogStream)
	for range 3 {
		c.queue.In() <- commandOf(ctx, "behind")
	}
	var group []*command
	for _, id := range []string{"1", "2"} {
		group = append(group, &command{ctx: ctx, done: make(chan outcome, 1), msgs: []outgoing{
			{subject: "monolith.bustest.model.m", id: id, header: map[string][]string{wire.MsgID: {id}}, expect: bus.Any},
		}})
	}
	if again := c.sendBatch(ctx, group); len(again) > 0 || c.callers != 5 {
		t.Errorf("%d commands are to be sent again, and %d callers are known, want 5", len(again), c.callers)
	}
	for i, cmd := range group {
		if o := <-cmd.done; o.err != nil || len(o.seqs) != 1 || o.seqs[0] != uint64(i+1) {
			t.Errorf("command %d is at %v, %v", i, o.seqs, o.err)
		}
	}
}

// A command counts for at least the bytes that are sent for it: batches are bounded by them.
func TestACommandCountsForWhatIsSent(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	c := newCommitter(connected(ctx, t), wire.LogStream)
	ready, err := wire.Prepare([]bus.Draft{{
		Subject: events.Join("bustest", "model", strings.Repeat("m", 150)), Header: events.Header{ID: "1"}, Expect: bus.Any,
		Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "x"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	sent, least := []outgoing{}, 0
	for range 10 {
		m := outgoing{subject: ready[0].Subject, id: ready[0].Header.ID, header: ready[0].Envelope(time.Now()), data: ready[0].Data, expect: bus.Any}
		sent, least = append(sent, m), least+m.message().Size()
	}
	gone, leave := context.WithCancel(ctx)
	heard := make(chan error, 1)
	go func() {
		_, err := c.commit(gone, sent)
		heard <- err
	}()
	group, err := c.queue.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(group) != 1 || group[0].size < least {
		t.Errorf("%d commands, the first of %d bytes; %d are sent", len(group), group[0].size, least)
	}
	leave()
	if err := <-heard; !bus.Retryable(err) {
		t.Errorf("whoever has gone hears %v", err)
	}
}
