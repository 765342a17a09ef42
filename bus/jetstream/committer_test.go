package jetstream

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/natsserver"
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

// How many callers the next batch waits for is how many there were in this one and behind it.
func TestCallersOfABatch(t *testing.T) {
	s, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	b, err := Connect(ctx, Config{Server: s, BZID: "bustest", Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	c := newCommitter(b, wire.LogStream)
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
