package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/retry"
)

// run owns one partition's connection and sends its pieces in order, grouped.
func (w *Writer) run(q *laneQueue) {
	var c *kafkago.Conn
	var used time.Time // when c last answered
	var carried *piece // did not fit into the last group
	drop := func() {
		if c != nil {
			c.Close()
			c = nil
		}
	}
	defer drop()
	defer func() { // Close: nothing that waits was sent
		if carried != nil {
			carried.fail(ErrClosed)
		}
		for {
			select {
			case p := <-q.in:
				p.fail(ErrClosed)
			default:
				return
			}
		}
	}()
	for {
		var group []*piece
		if group, carried = w.gather(q, carried); group == nil {
			return
		}
		deadline, pauses := time.Now().Add(w.patience), retry.New(minBackoff, maxBackoff)
		for {
			var err error
			if c == nil {
				c, err = w.cfg.Access.dialLeader(w.ctx, w.cfg.Brokers, q.topic, q.partition)
			}
			if err == nil && time.Since(used) > w.idle {
				err = probe(w.ctx, c)
			}
			if err == nil {
				if group = take(group); len(group) == 0 {
					break // every caller gave up meanwhile
				}
				if err = w.send(c, group); err == nil {
					used = time.Now()
					break
				}
			}
			drop()
			if !temporary(err) || errors.Is(err, ErrUnknown) || time.Now().After(deadline) || pauses.Wait(w.ctx) != nil {
				err = w.givenUp(err)
				for _, p := range group {
					p.fail(err)
				}
				break
			}
		}
	}
}

// givenUp is what callers are told whose pieces are not tried again after err.
func (w *Writer) givenUp(err error) error {
	switch {
	case errors.Is(err, ErrUnknown):
		return err
	case w.ctx.Err() != nil:
		return errors.Join(ErrClosed, err)
	case temporary(err) && !errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// probe asks something harmless, so that a connection that died while idle costs a new
// one rather than an unknown outcome.
func probe(ctx context.Context, c *kafkago.Conn) error {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	c.SetDeadline(time.Now().Add(answerTimeout))
	if _, err := c.ReadLastOffset(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// gather waits for a first piece and takes what fits beside it; nil when closed.
func (w *Writer) gather(q *laneQueue, first *piece) (group []*piece, rest *piece) {
	if first == nil {
		select {
		case first = <-q.in:
		case <-w.ctx.Done():
			return nil, nil
		}
	}
	if w.ctx.Err() != nil {
		return nil, first
	}
	group = []*piece{first}
	bytes, n := first.bytes, len(first.msgs)
	add := func(p *piece) bool {
		if bytes+p.bytes > maxBatchBytes || n+len(p.msgs) > maxBatchRecords {
			rest = p
			return false
		}
		group, bytes, n = append(group, p), bytes+p.bytes, n+len(p.msgs)
		return true
	}
	if w.cfg.Linger > 0 {
		t := time.NewTimer(w.cfg.Linger)
		defer t.Stop()
		for {
			select {
			case p := <-q.in:
				if !add(p) {
					return group, rest
				}
			case <-t.C:
				return group, nil
			case <-w.ctx.Done():
				return group, nil
			}
		}
	}
	for {
		select {
		case p := <-q.in:
			if !add(p) {
				return group, rest
			}
		default:
			return group, nil
		}
	}
}

// take claims the pieces whose callers still wait; those are sent for certain now.
func take(group []*piece) []*piece {
	kept := group[:0]
	for _, p := range group {
		if p.state.CompareAndSwap(waiting, taken) || p.state.Load() == taken {
			kept = append(kept, p)
		}
	}
	return kept
}

// send makes one request of the group and answers its callers when it is stored.
func (w *Writer) send(c *kafkago.Conn, group []*piece) error {
	var msgs []kafkago.Message
	for _, p := range group {
		msgs = append(msgs, p.msgs...)
	}
	if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	stop := context.AfterFunc(w.ctx, func() { c.Close() })
	defer stop()
	_, _, base, _, err := c.WriteCompressedMessagesAt(nil, msgs...)
	if err != nil {
		return outcome(err)
	}
	for _, p := range group {
		p.base = base
		base += int64(len(p.msgs))
		close(p.done)
	}
	return nil
}

// outcome says what an error of a request that went out means for its records.
func outcome(err error) error {
	var code kafkago.Error
	if !errors.As(err, &code) {
		return fmt.Errorf("%w: no answer: %w", ErrUnknown, err)
	}
	switch code {
	case kafkago.MessageSizeTooLarge:
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case kafkago.RequestTimedOut, kafkago.NotEnoughReplicasAfterAppend, kafkago.NetworkException, kafkago.Unknown, kafkago.KafkaStorageError:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

func (p *piece) fail(err error) {
	p.err = err
	close(p.done)
}
