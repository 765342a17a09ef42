package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/bus/jetstream/internal/stream"
)

func (m outgoing) message() *nats.Msg {
	h := make(nats.Header, len(m.header)+4)
	maps.Copy(h, m.header)
	if m.expect != bus.Any {
		h[conn.ExpectHeader] = []string{strconv.FormatUint(m.expect, 10)}
	}
	return &nats.Msg{Subject: m.subject, Header: h, Data: m.data}
}

// sendPlain publishes commands of one message each, all at once, and returns those
// whose outcome is unknown.
func (c *committer) sendPlain(ctx context.Context, group []*command) (again []*command) {
	unknown := make([]bool, len(group))
	if len(group) == 1 {
		unknown[0] = c.sendOne(ctx, group[0])
	} else {
		var wg sync.WaitGroup
		for i, cmd := range group {
			wg.Go(func() { unknown[i] = c.sendOne(ctx, cmd) })
		}
		wg.Wait()
	}
	for i, cmd := range group {
		if unknown[i] {
			again = append(again, cmd)
		}
	}
	return again
}

func (c *committer) sendOne(ctx context.Context, cmd *command) (unknown bool) {
	a, err := c.b.conn.Request(ctx, cmd.msgs[0].message())
	if err == nil {
		cmd.answer([]uint64{a.Seq}, nil)
		return false
	}
	return c.refused(ctx, cmd, err)
}

// refused decides what the refusal of a single command means.
func (c *committer) refused(ctx context.Context, cmd *command, err error) (unknown bool) {
	var api *conn.APIError
	if !errors.As(err, &api) {
		if bus.Retryable(err) {
			return true
		}
		cmd.answer(nil, fmt.Errorf("append to %s: %w", c.stream, err))
		return false
	}
	if api.Busy() {
		return true
	}
	if api.ErrCode == conn.CodeWrongLast || api.ErrCode == conn.CodeDuplicate {
		// The expectation is checked before the id: it may be our own message, of an
		// attempt whose ack was lost, that the expectation stumbles over.
		seqs, ferr := c.find(ctx, cmd)
		switch {
		case bus.Retryable(ferr):
			return true
		case ferr != nil:
			cmd.answer(nil, fmt.Errorf("append to %s: %w", c.stream, ferr))
			return false
		case seqs != nil:
			cmd.answer(seqs, nil)
			return false
		case api.ErrCode == conn.CodeDuplicate:
			cmd.answer(nil, fmt.Errorf("append to %s: %w", c.stream, wire.ErrRepeated))
			return false
		}
	}
	cmd.answer(nil, fmt.Errorf("append to %s: %w", c.stream, api.Sentinel()))
	return false
}

// sendBatch stores the group in one atomic batch. When it is refused, nothing of it
// was stored and the answer names no culprit: small groups are sent one by one, large
// ones in halves; a command of several messages stays whole.
func (c *committer) sendBatch(ctx context.Context, group []*command) (again []*command) {
	a, err := c.publishBatch(ctx, group)
	if err == nil {
		c.callers = len(group) + c.queue.Len()
		first := a.Seq - uint64(a.Count) + 1
		for _, cmd := range group {
			seqs := make([]uint64, len(cmd.msgs))
			for i := range seqs {
				seqs[i] = first
				first++
			}
			cmd.answer(seqs, nil)
		}
		return nil
	}
	if len(group) == 1 {
		if c.refused(ctx, group[0], err) {
			again = group
		}
		return again
	}
	var api *conn.APIError
	if !errors.As(err, &api) {
		if bus.Retryable(err) {
			return group
		}
		return c.split(ctx, group) // one of them cannot be sent; the others are not to hear of it
	}
	if api.Away() {
		return group
	}
	if errors.Is(api.Sentinel(), bus.ErrFull) {
		for _, cmd := range group {
			cmd.answer(nil, fmt.Errorf("append to %s: %w", c.stream, api.Sentinel()))
		}
		return nil
	}
	return c.split(ctx, group)
}

func (c *committer) split(ctx context.Context, group []*command) (again []*command) {
	if len(group) > oneByOne {
		half := len(group) / 2
		again = c.sendBatch(ctx, group[:half])
		return append(again, c.sendBatch(ctx, group[half:])...)
	}
	var single []*command
	for _, cmd := range group {
		if len(cmd.msgs) == 1 {
			single = append(single, cmd)
		} else {
			again = append(again, c.sendBatch(ctx, []*command{cmd})...)
		}
	}
	return append(again, c.sendPlain(ctx, single)...)
}

// publishBatch sends every message of the group under one batch id; the ack of the
// last one is the ack of all.
func (c *committer) publishBatch(ctx context.Context, group []*command) (*conn.Ack, error) {
	var msgs []outgoing
	for _, cmd := range group {
		msgs = append(msgs, cmd.msgs...)
	}
	if len(msgs) < batchMinimum {
		return c.b.conn.Request(ctx, msgs[0].message())
	}
	batch := rand.Text()
	for i, out := range msgs {
		m := out.message()
		m.Header["Nats-Batch-Id"] = []string{batch}
		m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		if i < len(msgs)-1 {
			if err := c.b.conn.NATS.PublishMsg(m); err != nil {
				return nil, conn.Failure(err)
			}
			continue
		}
		m.Header["Nats-Batch-Commit"] = []string{"1"}
		a, err := c.b.conn.Request(ctx, m)
		if err == nil && (a.Batch != batch || a.Count != len(msgs)) {
			return nil, fmt.Errorf("%w: the ack is of %d messages of batch %q, %d of %q were sent", bus.ErrUnavailable, a.Count, a.Batch, len(msgs), batch)
		}
		return a, err
	}
	panic("unreachable: a batch has a last message")
}

// find looks for a command that an earlier attempt stored. Messages of one command lie
// side by side, so one of them shows all. It returns nil when the command is not
// stored, and wire.ErrRepeated when only some of its ids are. The leader is asked, whose
// refusal this is about: another replica may not have the messages yet.
func (c *committer) find(ctx context.Context, cmd *command) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, conn.RequestTimeout)
	defer cancel()
	i := slices.IndexFunc(cmd.msgs, func(m outgoing) bool { return m.expect != bus.Any })
	var at *stream.Message
	var err error
	if i >= 0 {
		// Stored under its expectation, it is the first of its subject behind it.
		at, err = c.b.stream(c.stream).Ask(ctx, stream.Query{Seq: cmd.msgs[i].expect + 1, NextFor: cmd.msgs[i].subject})
	} else {
		i = 0
		at, err = c.search(ctx, cmd.msgs[0])
	}
	if errors.Is(err, bus.ErrNotFound) || (err == nil && at.ID() != cmd.msgs[i].id) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if at.Seq <= uint64(i) {
		return nil, wire.ErrRepeated
	}
	first := at.Seq - uint64(i)
	seqs := make([]uint64, len(cmd.msgs))
	for j, m := range cmd.msgs {
		seqs[j] = first + uint64(j)
		if j == i {
			continue
		}
		other, err := c.b.stream(c.stream).At(ctx, seqs[j])
		if errors.Is(err, bus.ErrNotFound) || (err == nil && other.ID() != m.id) {
			return nil, wire.ErrRepeated
		}
		if err != nil {
			return nil, err
		}
	}
	return seqs, nil
}

// search walks an unguarded message's subject through the time for which ids are
// remembered.
func (c *committer) search(ctx context.Context, m outgoing) (*stream.Message, error) {
	start := mayBeStored(time.Now())
	at, err := c.b.stream(c.stream).Ask(ctx, stream.Query{NextFor: m.subject, Start: &start})
	for err == nil && at.ID() != m.id {
		at, err = c.b.stream(c.stream).Ask(ctx, stream.Query{NextFor: m.subject, Seq: at.Seq + 1})
	}
	return at, err
}

// mayBeStored is from when on a message is stored that the server would not store again: a minute
// more than it remembers, as its clock may differ.
func mayBeStored(now time.Time) time.Time { return now.Add(-wire.Window - time.Minute) }
