package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/groupcommit"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
)

const (
	queued       = 4096    // commands that wait for the committer; later callers wait to be queued
	plainRound   = 8       // messages up to which single publishes are quicker than a batch
	batchLimit   = 1000    // messages of one batch, the server's limit
	batchBytes   = 8 << 20 // bytes of one batch, unless a single command is larger
	oneByOne     = 64      // commands of a refused batch up to which each is sent alone
	batchMinimum = 2       // a batch of one is a plain publish
	quiet        = 5       // attempts that may stay without an ack before that is a problem
)

// outgoing is one message of a command, without what a batch adds.
type outgoing struct {
	subject string
	id      string
	header  map[string][]string
	data    []byte
	expect  uint64 // bus.Any: unguarded
}

// command is one call's messages: stored together or not at all.
type command struct {
	ctx  context.Context // the caller's, with its deadline
	msgs []outgoing
	size int
	done chan outcome // of capacity 1
}

type outcome struct {
	seqs []uint64
	err  error
}

// committer is the only writer of its stream in this process. Whatever waits while one
// group is on its way to the disk forms the next group, so that one fsync serves many
// callers; a lone caller pays no waiting time. While an outcome is unknown, nothing
// else is sent: the same messages are sent again with the same ids, and the stream
// says which of them it has.
type committer struct {
	b       *Bus
	stream  string
	queue   *groupcommit.Queue[*command]
	callers int  // of the last batch and behind it when its ack came, before they were told
	unwell  bool // Config.Health was told so
}

// errUnanswered is what Config.Health is told of a stream whose writes stay without an ack.
var errUnanswered = errors.New("writes are sent again and again and nothing acks them: the NATS server is away, or its disk is full, of which its log tells")

func newCommitter(b *Bus, stream string) *committer {
	limits := groupcommit.Limits{Queued: queued, Count: batchLimit, Bytes: batchBytes}
	return &committer{b: b, stream: stream, queue: groupcommit.New(limits, func(cmd *command) int { return cmd.size })}
}

// commit waits until the messages are on disk and returns their sequences.
func (c *committer) commit(ctx context.Context, msgs []outgoing) ([]uint64, error) {
	ctx, cancel := c.b.conn.Bound(ctx)
	defer cancel()
	cmd := &command{ctx: ctx, msgs: msgs, done: make(chan outcome, 1)}
	for _, m := range msgs {
		cmd.size += len(m.data) + len(m.subject) + 512
	}
	select {
	case c.queue.In() <- cmd:
	case <-ctx.Done():
		return nil, c.gone(ctx.Err())
	case <-c.b.conn.Context().Done():
		return nil, c.gone(context.Cause(c.b.conn.Context()))
	}
	select {
	case o := <-cmd.done:
		return o.seqs, o.err
	case <-ctx.Done():
		return nil, c.gone(ctx.Err())
	case <-c.b.conn.Context().Done():
		return nil, c.gone(context.Cause(c.b.conn.Context()))
	}
}

// gone is what a caller hears whose messages may or may not be stored.
func (c *committer) gone(cause error) error {
	return fmt.Errorf("append to %s: %w: no answer yet, the same ids may be sent again (a server whose disk is full answers nobody: its log says so): %w", c.stream, bus.ErrUnavailable, cause)
}

// run commits group after group until ctx ends.
func (c *committer) run(ctx context.Context) {
	pauses, failed := conn.NewPauses(), 0
	for {
		waiting, err := c.queue.Next(ctx)
		if err != nil {
			return
		}
		group, rest := pick(waiting)
		c.queue.Return(rest)
		again := c.round(ctx, group)
		if len(again) == 0 {
			pauses.Reset()
			if failed = 0; c.unwell && len(group) > 0 {
				c.unwell = false
				c.b.cfg.Health.OK(c.stream)
			}
			continue
		}
		if failed++; failed == quiet {
			c.unwell = true
			c.b.cfg.Health.Fail(c.stream, errUnanswered)
		}
		c.queue.Return(again)
		if pauses.Wait(ctx) != nil {
			return
		}
	}
}

// round commits a group and returns the commands whose outcome is unknown.
func (c *committer) round(ctx context.Context, group []*command) (again []*command) {
	c.callers = len(group)
	began := time.Now()
	ctx, cancel := c.b.stream(c.stream).UntilElected(ctx)
	defer cancel()
	again = c.send(ctx, group)
	c.queue.Expect(awaited(len(group), c.callers), time.Since(began))
	return again
}

// awaited is for how many callers the next round waits, after one of sent commands, when callers were in it and behind
// it. Those of a large one are awaited: a batch costs several fsyncs whatever its size. Very many do better in two
// halves, one preparing while the other is stored.
func awaited(sent, callers int) int {
	switch {
	case sent <= plainRound:
		return 0
	case callers > batchLimit/2:
		return sent / 2
	}
	return callers
}

// send commits a group that may share a batch.
func (c *committer) send(ctx context.Context, group []*command) (again []*command) {
	n := 0
	single := true
	for _, cmd := range group {
		n += len(cmd.msgs)
		single = single && len(cmd.msgs) == 1
	}
	switch {
	case len(group) == 0:
		return nil
	case single && n <= plainRound:
		return c.sendPlain(ctx, group)
	default:
		return c.sendBatch(ctx, group)
	}
}

// pick chooses the commands of the next group, in order. In a batch, the server checks
// every expectation against the stream before the batch: so a guarded subject stands
// in it once, and a command that would meet itself there waits for the next group.
func pick(backlog []*command) (group, rest []*command) {
	guarded, touched := map[string]bool{}, map[string]bool{}
	n, size := 0, 0
	for i, cmd := range backlog {
		if cmd.ctx.Err() != nil {
			continue // its caller has gone, and knows that nothing is known
		}
		if n > 0 && (n+len(cmd.msgs) > batchLimit || size+cmd.size > batchBytes) {
			rest = append(rest, backlog[i:]...)
			break
		}
		if meets(cmd, guarded, touched) {
			rest = append(rest, cmd)
			continue
		}
		for _, m := range cmd.msgs {
			touched[m.subject] = true
			if m.expect != bus.Any {
				guarded[m.subject] = true
			}
		}
		group = append(group, cmd)
		n, size = n+len(cmd.msgs), size+cmd.size
	}
	return group, rest
}

func meets(cmd *command, guarded, touched map[string]bool) bool {
	for _, m := range cmd.msgs {
		if guarded[m.subject] || (m.expect != bus.Any && touched[m.subject]) {
			return true
		}
	}
	return false
}

func (cmd *command) answer(seqs []uint64, err error) {
	select {
	case cmd.done <- outcome{seqs, err}:
	default: // answered before; cannot happen twice to one command
	}
}
