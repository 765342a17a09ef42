package react

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
)

// delivery is what travels beside a watermill message.
type delivery struct {
	x     *reaction
	event events.Recorded
}

type deliveryKey struct{}

func deliveryOf(msg *message.Message) *delivery {
	return msg.Context().Value(deliveryKey{}).(*delivery)
}

// subscriber is the log as watermill sees it: one message at a time, the next one when
// it is settled.
type subscriber struct {
	x        *reaction
	caughtUp func()
	fail     context.CancelCauseFunc
	cancel   context.CancelFunc // set by Subscribe
	done     chan struct{}
}

func newSubscriber(x *reaction, caughtUp func(), fail context.CancelCauseFunc) *subscriber {
	return &subscriber{x: x, caughtUp: sync.OnceFunc(caughtUp), fail: fail}
}

// Subscribe is called once, by the router.
func (s *subscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.done = make(chan struct{})
	out := make(chan *message.Message)
	go func() {
		defer close(s.done)
		defer close(out)
		if err := s.run(ctx, out); err != nil && ctx.Err() == nil {
			s.fail(fmt.Errorf("reaction %s: %w", s.x.name, err))
		}
	}()
	return out, nil
}

// Close ends the subscription and waits for it.
func (s *subscriber) Close() error {
	if s.done != nil {
		s.cancel()
		<-s.done
	}
	return nil
}

// run first sorts out what the log holds, then goes on live.
func (s *subscriber) run(ctx context.Context, out chan<- *message.Message) error {
	from, last, err := s.span(ctx)
	if err != nil {
		return err
	}
	open, err := s.open(ctx, from, last)
	if err != nil {
		return err
	}
	if len(open) > 0 {
		if err := s.catchUp(ctx, open, out); err != nil {
			return err
		}
	}
	s.x.place.at.Store(max(from-1, last))
	s.caughtUp()
	return s.x.r.cfg.Log.Follow(ctx, max(last+1, from), 0, func(r events.Recorded) error {
		if s.x.match(r) {
			if err := s.deliver(ctx, out, r); err != nil {
				return err
			}
		}
		s.x.place.at.Store(r.Seq)
		return nil
	})
}

// span is where the reaction begins, behind what it has settled, and the end of the log.
func (s *subscriber) span(ctx context.Context) (from, last uint64, err error) {
	cfg := s.x.r.cfg
	if last, err = cfg.Log.Last(ctx); err != nil {
		return 0, 0, err
	}
	settled, err := cfg.Letters.Settled(ctx, cfg.BZID, s.x.name)
	if err != nil {
		return 0, 0, err
	}
	if settled > last {
		cfg.Logger.Warn("the reaction was further than the log is: it must be another log", "reaction", s.x.name, "settled", settled, "last", last)
		settled = 0
	}
	return max(s.x.from, settled+1, 1), last, nil
}

// open returns the sequences up to last of the events that this reaction has not
// answered. Ids are remembered by the stream for minutes only; the log remembers its
// answers for ever. What the log has forgotten without an archive is passed over.
func (s *subscriber) open(ctx context.Context, from, last uint64) ([]uint64, error) {
	if from > last {
		return nil, nil
	}
	open, err := s.unanswered(ctx, from, last)
	log, ok := s.x.r.cfg.Log.(spanner)
	if !errors.Is(err, bus.ErrTrimmed) || !ok {
		return open, err
	}
	first, _, err := log.Span(ctx)
	if err != nil {
		return nil, err
	}
	s.x.r.cfg.Logger.Warn("the log was trimmed before the reaction had seen all of it; with an archive it would have",
		"reaction", s.x.name, "from", from, "first", first)
	if first > last {
		return nil, nil
	}
	return s.unanswered(ctx, first, last)
}

// spanner is the part of bus.Trimmer that says what the log holds.
type spanner interface {
	Span(ctx context.Context) (first, last uint64, err error)
}

func (s *subscriber) unanswered(ctx context.Context, from, last uint64) ([]uint64, error) {
	open := map[uint64][]string{}    // the ids of the first event of the answer, of this build and of earlier ones
	answers := map[string][]uint64{} // the other way round
	err := s.x.r.cfg.Log.Follow(ctx, from, last, func(r events.Recorded) error {
		for _, seq := range answers[r.Header.ID] {
			for _, id := range open[seq] {
				if id != r.Header.ID {
					drop(answers, id, seq)
				}
			}
			delete(open, seq)
		}
		delete(answers, r.Header.ID)
		if s.x.match(r) {
			ids := []string{ID(r, s.x.name, 0), EarlierID(r.Header.ID, s.x.name, 0)}
			open[r.Seq] = ids
			for _, id := range ids {
				answers[id] = append(answers[id], r.Seq)
			}
		}
		return nil
	})
	return slices.Sorted(maps.Keys(open)), err
}

// drop takes one sequence from those under an id.
func drop(answers map[string][]uint64, id string, seq uint64) {
	left := slices.DeleteFunc(answers[id], func(s uint64) bool { return s == seq })
	if len(left) == 0 {
		delete(answers, id)
	} else {
		answers[id] = left
	}
}

// catchUp delivers the events named, except those that were parked.
func (s *subscriber) catchUp(ctx context.Context, open []uint64, out chan<- *message.Message) error {
	return s.x.r.cfg.Log.Follow(ctx, open[0], open[len(open)-1], func(r events.Recorded) error {
		if r.Seq != open[0] {
			return nil
		}
		open = open[1:]
		parked, err := s.x.r.cfg.Letters.Knows(ctx, bus.Parked{By: s.x.r.cfg.Owner, Stream: wire.LogStream, StreamSeq: r.Seq, Subject: string(r.Subject)})
		if err != nil {
			return err
		}
		if !parked {
			if err := s.deliver(ctx, out, r); err != nil {
				return err
			}
		}
		s.x.place.at.Store(r.Seq)
		return nil
	})
}

// deliver hands one event to the router and waits until it is settled: handled, or
// parked. An error means that ctx has ended.
func (s *subscriber) deliver(ctx context.Context, out chan<- *message.Message, r events.Recorded) error {
	msg := message.NewMessage(r.Header.ID, r.Data)
	msg.SetContext(context.WithValue(ctx, deliveryKey{}, &delivery{s.x, r}))
	select {
	case out <- msg:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-msg.Acked():
		return nil
	case <-msg.Nacked():
		return errors.Join(ctx.Err(), fmt.Errorf("event %d was neither handled nor parked", r.Seq))
	case <-ctx.Done():
		return ctx.Err()
	}
}
