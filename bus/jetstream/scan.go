package jetstream

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
)

// scanBytes bounds what is on its way to a scan; a message has at most an eighth of it.
const scanBytes = 8 << 20

// atLeader is how many consumers a scan makes until one is at the stream's leader: the server
// puts them anywhere. Other replicas may still have what was removed.
const atLeader = 16

// scan hands what a stream holds on the filter's subjects at this moment to handle, in
// order; without bodies, what is stored comes without its data, and size tells their
// length. It goes on after an outage that is shorter than a call's time-out.
func (b *Bus) scan(ctx context.Context, stream, filter string, bodies bool, handle func(*stored) error) error {
	end, err := b.extent(ctx, stream)
	if err != nil {
		return err
	}
	var own error // of handle
	each := func(m *stored) bool {
		own = handle(m)
		return own == nil
	}
	next := uint64(1)
	for {
		before := next
		attempt, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
		err := b.retry(attempt, func(ctx context.Context) error {
			if before != next {
				return nil // as far as this: the next outage has its own time
			}
			return b.scanOnce(ctx, stream, filter, bodies, &next, end, each)
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
func (b *Bus) scanOnce(attempt context.Context, stream, filter string, bodies bool, next *uint64, end extent, handle func(*stored) bool) error {
	if *next > end.last {
		return nil
	}
	cons, err := b.scanner(attempt, stream, end, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *next, FilterSubject: filter,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: 30 * time.Second, HeadersOnly: !bodies,
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", stream, failure(err))
	}
	defer (&follower{b: b, stream: stream}).remove(cons)
	over := func(ctx context.Context, pending uint64) (bool, error) {
		if pending > 0 {
			return false, nil
		}
		return b.empty(ctx, stream, []string{filter}, *next, end.last)
	}
	switch nothing, err := over(attempt, cons.CachedInfo().NumPending); {
	case err != nil:
		return err
	case nothing:
		*next = end.last + 1
		return nil
	}
	it, err := cons.Messages(jetstream.PullMaxBytes(scanBytes), jetstream.PullExpiry(requestTimeout))
	if err != nil {
		return fmt.Errorf("read %s: %w: %w", stream, bus.ErrUnavailable, err)
	}
	defer it.Stop()
	for *next <= end.last {
		wait, cancel := b.link.whileUp(attempt, requestTimeout)
		msg, err := it.Next(jetstream.NextContext(wait))
		cancel()
		if err != nil {
			return fmt.Errorf("read %s: %w: %w", stream, bus.ErrUnavailable, err)
		}
		md, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read %s: %w: %w", stream, bus.ErrUnavailable, err)
		}
		if md.Sequence.Stream > end.last {
			*next = end.last + 1
			return nil
		}
		m := &stored{seq: md.Sequence.Stream, subject: msg.Subject(), at: md.Timestamp.UTC(), header: msg.Headers(), data: msg.Data()}
		if !handle(m) {
			return nil
		}
		*next = m.seq + 1
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
func (b *Bus) scanner(ctx context.Context, stream string, end extent, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	for try := 1; ; try++ {
		ask, cancel := b.link.whileUp(ctx, requestTimeout)
		cons, err := b.js.CreateConsumer(ask, stream, cfg)
		cancel()
		if err != nil {
			return nil, err
		}
		if at := cons.CachedInfo().Cluster; !end.replicated || try == atLeader || at == nil || at.Leader == end.leader {
			return cons, nil
		}
		(&follower{b: b, stream: stream}).remove(cons)
	}
}

// size is the length of the data, also when it was not sent along.
func (m *stored) size() int {
	if v := m.header["Nats-Msg-Size"]; len(v) > 0 {
		if n, err := strconv.Atoi(v[0]); err == nil {
			return n
		}
	}
	return len(m.data)
}
