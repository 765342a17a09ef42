package react

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

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
	open, last, err := s.catchUp(ctx)
	if err != nil {
		return err
	}
	for _, r := range open {
		if err := s.deliver(ctx, out, r); err != nil {
			return err
		}
	}
	s.caughtUp()
	return s.x.r.cfg.Log.Follow(ctx, max(last+1, s.x.from), 0, func(r events.Recorded) error {
		if !s.x.match(r) {
			return nil
		}
		return s.deliver(ctx, out, r)
	})
}

// catchUp returns the events up to the end of the log that this reaction has neither
// answered nor parked. Ids are remembered by the stream for minutes only; the log
// remembers its answers for ever.
func (s *subscriber) catchUp(ctx context.Context) (open []events.Recorded, last uint64, err error) {
	if last, err = s.x.r.cfg.Log.Last(ctx); err != nil {
		return nil, 0, err
	}
	if last < s.x.from || last == 0 {
		return nil, last, nil
	}
	parked, err := s.parked(ctx)
	if err != nil {
		return nil, 0, err
	}
	waiting := map[string]events.Recorded{} // by the id of the first event of the answer
	var order []string
	err = s.x.r.cfg.Log.Follow(ctx, s.x.from, last, func(r events.Recorded) error {
		delete(waiting, r.Header.ID)
		if !parked[r.Seq] && s.x.match(r) {
			id := ID(r.Header.ID, s.x.name, 0)
			waiting[id] = r
			order = append(order, id)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	for _, id := range order {
		if r, ok := waiting[id]; ok {
			open = append(open, r)
			delete(waiting, id)
		}
	}
	return open, last, nil
}

// parked are the sequences that stand in the dead letters already.
func (s *subscriber) parked(ctx context.Context) (map[uint64]bool, error) {
	letters, err := s.x.r.cfg.Letters.List(ctx)
	if err != nil {
		return nil, err
	}
	seqs := map[uint64]bool{}
	for _, p := range letters {
		if p.Stream == wire.LogStream && p.By == s.x.r.cfg.Owner {
			seqs[p.StreamSeq] = true
		}
	}
	return seqs, nil
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
