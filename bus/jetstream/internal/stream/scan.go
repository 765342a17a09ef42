package stream

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
)

// scanBytes bounds what is on its way to a scan; a message has at most an eighth of it.
const scanBytes = 8 << 20

// atLeader is how many consumers a scan makes until one is at the stream's leader: the server
// puts them anywhere. Other replicas may still have what was removed.
const atLeader = 16

// Scan hands what the stream holds on the filter's subjects at this moment to handle, in
// order; without bodies, what is stored comes without its data, and Size tells their
// length. It goes on after an outage that is shorter than a call's time-out.
func (s Stream) Scan(ctx context.Context, filter string, bodies bool, handle func(*Message) error) error {
	end, err := s.extent(ctx)
	if err != nil {
		return err
	}
	var own error // of handle
	each := func(m *Message) bool {
		own = handle(m)
		return own == nil
	}
	next := uint64(1)
	for {
		before := next
		attempt, cancel := context.WithTimeout(ctx, s.conn.Timeout())
		err := s.conn.Retry(attempt, func(ctx context.Context) error {
			if before != next {
				return nil // as far as this: the next outage has its own time
			}
			return s.scanOnce(ctx, filter, bodies, &next, end, each)
		})
		cancel()
		switch {
		case own != nil:
			return own
		case err != nil && (before == next || ctx.Err() != nil || !bus.Retryable(err)):
			return err
		case next > end.last:
			return nil
		}
	}
}

// scanOnce reads with one consumer until handle is false, and leaves next behind the last
// message handled, or behind last when that was all.
func (s Stream) scanOnce(attempt context.Context, filter string, bodies bool, next *uint64, end extent, handle func(*Message) bool) error {
	if *next > end.last {
		return nil
	}
	cons, err := s.scanner(attempt, end, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *next, FilterSubject: filter,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: 30 * time.Second, HeadersOnly: !bodies,
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", s.name, conn.Failure(err))
	}
	defer s.remove(cons)
	over := func(ctx context.Context, pending uint64) (bool, error) {
		if pending > 0 {
			return false, nil
		}
		return s.empty(ctx, []string{filter}, *next, end.last)
	}
	switch nothing, err := over(attempt, cons.CachedInfo().NumPending); {
	case err != nil:
		return err
	case nothing:
		*next = end.last + 1
		return nil
	}
	it, err := cons.Messages(jetstream.PullMaxBytes(scanBytes), jetstream.PullExpiry(conn.RequestTimeout))
	if err != nil {
		return fmt.Errorf("read %s: %w: %w", s.name, bus.ErrUnavailable, err)
	}
	defer it.Stop()
	for *next <= end.last {
		wait, cancel := s.conn.WhileUp(attempt, conn.RequestTimeout)
		msg, err := it.Next(jetstream.NextContext(wait))
		cancel()
		if err != nil {
			return fmt.Errorf("read %s: %w: %w", s.name, bus.ErrUnavailable, err)
		}
		md, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read %s: %w: %w", s.name, bus.ErrUnavailable, err)
		}
		if md.Sequence.Stream > end.last {
			*next = end.last + 1
			return nil
		}
		m := &Message{Seq: md.Sequence.Stream, Subject: msg.Subject(), Time: md.Timestamp.UTC(), Header: msg.Headers(), Data: msg.Data()}
		if !handle(m) {
			return nil
		}
		*next = m.Seq + 1
		switch nothing, err := over(attempt, md.NumPending); {
		case err != nil:
			return err
		case nothing:
			*next = end.last + 1
		}
	}
	return nil
}

// scanner makes a consumer, at the leader of a replicated stream if that can be had.
func (s Stream) scanner(ctx context.Context, end extent, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	for try := 1; ; try++ {
		ask, cancel := s.conn.WhileUp(ctx, conn.RequestTimeout)
		cons, err := s.conn.JS.CreateConsumer(ask, s.name, cfg)
		cancel()
		if err != nil {
			return nil, err
		}
		if at := cons.CachedInfo().Cluster; !end.replicated || try == atLeader || at == nil || at.Leader == end.leader {
			return cons, nil
		}
		s.remove(cons)
	}
}

// Size is the length of the data, also when it was not sent along.
func (m *Message) Size() int {
	if v := m.Header["Nats-Msg-Size"]; len(v) > 0 {
		if n, err := strconv.Atoi(v[0]); err == nil {
			return n
		}
	}
	return len(m.Data)
}
