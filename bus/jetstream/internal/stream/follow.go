package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
)

// checkEvery is how often a follower compares its position with the stream's, to learn
// that nothing was lost and that it is done.
const checkEvery = time.Second

// prefetch and prefetchBytes bound one request for messages, of which two may be on their
// way to a follower. All followers of a connection together have to stay far below 64 MiB,
// from where the server takes the connection for a slow consumer and cuts it, and from
// where the client drops messages of a subscription.
const (
	prefetch      = 1000
	prefetchBytes = 4 << 20
)

// lostEvery is how often a follower of a stream that never discards compares what came with
// what was sent. A message that is lost on the way leaves a gap that the next one shows; of
// the last one nothing else would.
const lostEvery = 3 * time.Second

// errAgain says that the consumer is gone and a new one goes on behind the last
// message handled.
var errAgain = errors.New("consumer is gone")

// Reading says what of a stream is followed.
type Reading struct {
	From, Until uint64   // inclusive; Until 0: for ever
	Subjects    []string // none: everything
	Discards    bool     // the stream discards its oldest by itself
	Whole       bool     // every sequence is wanted: one that is missing was trimmed

	// Hint is what to do about a sequence of a Whole reading that was trimmed.
	Hint func(context.Context) string
}

// Follow hands messages to handle in order until Until is reached, or ctx or the connection
// ends; an error of handle ends it too, and is returned as it is.
func (s Stream) Follow(ctx context.Context, r Reading, handle func(*Message) error) error {
	f := follower{Stream: s, Reading: r, handle: handle}
	return f.run(ctx)
}

// follower replays a stream in order. Its consumers are temporary: position lives here,
// so a lost consumer, connection or server costs a new consumer and nothing else.
type follower struct {
	Stream
	Reading
	handle func(*Message) error

	end      extent // of the stream when it was last looked at
	next     uint64 // everything before has been handled, or does not match
	gap      uint64 // first sequence whose absence is not yet known to be harmless, 0: none
	moved    bool   // a message has been handled
	progress bool   // since the last consumer
}

func (f *follower) run(ctx context.Context) error {
	f.next = max(f.From, 1)
	pauses := conn.NewPauses()
	for {
		if f.Until > 0 && f.next > f.Until {
			return nil
		}
		err := f.consume(ctx)
		var own handled
		switch {
		case err == nil:
			return nil
		case errors.As(err, &own):
			return own.error
		case ctx.Err() != nil:
			return ctx.Err()
		case f.conn.Context().Err() != nil:
			return fmt.Errorf("follow %s: %w", f.name, f.conn.Over())
		case !errors.Is(err, errAgain) && !bus.Retryable(err):
			return err
		}
		if f.progress {
			pauses.Reset()
		}
		f.conn.Log.Debug("follower goes on with a new consumer", "stream", f.name, "next", f.next, "cause", err)
		if pauses.Wait(ctx) != nil {
			return ctx.Err()
		}
	}
}

// handled is an error of the caller's own, not to be mistaken for one of ours.
type handled struct{ error }

func (h handled) Unwrap() error { return h.error }

// consume hands on what one consumer delivers; nil means that until is reached.
func (f *follower) consume(parent context.Context) error {
	f.progress = false
	ctx, cancel := f.conn.WhileUp(parent, 365*24*time.Hour)
	defer cancel()
	defer context.AfterFunc(f.conn.Context(), cancel)()

	var err error
	if f.end, err = f.extent(ctx); err != nil {
		return err
	}
	if f.moved && f.end.last+1 < f.next {
		return fmt.Errorf("follow %s: sequence %d was handled and now the stream ends at %d; it is another stream, or its disk lost data", f.name, f.next-1, f.end.last)
	}
	cons, err := f.create(ctx)
	if err != nil {
		return err
	}
	defer f.remove(cons)
	if f.gap == 0 {
		f.gap = f.next
	}
	if err := f.trimmed(ctx); err != nil {
		return err
	}
	if over, err := f.over(ctx, cons.CachedInfo().NumPending); over || err != nil {
		return err
	}
	it, err := cons.Messages(jetstream.PullMaxMessagesWithBytesLimit(prefetch, prefetchBytes), jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(500*time.Millisecond))
	if err != nil {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	defer it.Stop()

	every := lostEvery
	if f.Discards || f.Until > 0 {
		every = checkEvery
	}
	var delivered, before uint64 // before the check
	for {
		tick, stop := context.WithTimeout(ctx, every)
		err := f.drain(tick, it, &delivered)
		stop()
		switch {
		case err == nil || errors.As(err, new(handled)):
			return err
		case ctx.Err() != nil:
			return errAgain
		case !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		if err := f.check(ctx, cons, delivered, delivered == before); err != nil {
			return err
		}
		before = delivered
		if f.Until > 0 && f.next > f.Until {
			return nil
		}
	}
}

// create makes the consumer that starts at next.
func (f *follower) create(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, conn.RequestTimeout)
	defer cancel()
	var cons jetstream.Consumer
	err := f.conn.Ask(ctx, func(ctx context.Context) (err error) {
		cons, err = f.conn.JS.CreateConsumer(ctx, f.name, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.next, FilterSubjects: f.Subjects,
			AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: 30 * time.Second,
		})
		return conn.Failure(err)
	})
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", f.name, err)
	}
	return cons, nil
}

// remove spares the server a consumer that nobody reads; one that cannot be removed now
// ends by itself.
func (s Stream) remove(cons jetstream.Consumer) {
	if !s.conn.NATS.IsConnected() {
		return
	}
	ctx, cancel := s.conn.WhileUp(context.Background(), time.Second)
	defer cancel()
	if err := s.conn.JS.DeleteConsumer(ctx, s.name, cons.CachedInfo().Name); err != nil {
		s.conn.Log.Debug("consumer is left to end by itself", "stream", s.name, "err", err)
	}
}

// drain hands on messages until tick ends, with its error, or until is reached, with nil.
func (f *follower) drain(tick context.Context, it jetstream.MessagesContext, delivered *uint64) error {
	for {
		msg, err := it.Next(jetstream.NextContext(tick))
		if err != nil {
			if tick.Err() != nil {
				return tick.Err()
			}
			return fmt.Errorf("%w: %w", errAgain, err)
		}
		md, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("%w: %w", errAgain, err)
		}
		if md.Sequence.Consumer != *delivered+1 || md.Sequence.Stream < f.next {
			return fmt.Errorf("%w: message %d came where %d was due", errAgain, md.Sequence.Consumer, *delivered+1)
		}
		*delivered++
		seq := md.Sequence.Stream
		if f.Until > 0 && seq > f.Until {
			f.next = seq
			return nil
		}
		if f.gap == 0 && seq > f.next {
			f.gap = f.next
		}
		if f.Whole && f.gap != 0 {
			if err := f.trimmed(tick); err != nil {
				return err
			}
			if seq > f.next {
				return fmt.Errorf("follow %s: sequence %d follows %d, and nothing was trimmed: the stream has lost events", f.name, seq, f.next-1)
			}
		}
		m := &Message{Seq: seq, Subject: msg.Subject(), Time: md.Timestamp.UTC(), Header: msg.Headers(), Data: msg.Data()}
		if err := f.handle(m); err != nil {
			return handled{err}
		}
		f.next, f.moved, f.progress = seq+1, true, true
		if f.Until > 0 && seq == f.Until {
			return nil
		}
		if over, err := f.over(tick, md.NumPending); over || err != nil {
			return err
		}
	}
}

// over says whether a consumer that has so much pending has delivered all up to until.
func (f *follower) over(ctx context.Context, pending uint64) (bool, error) {
	if f.Until == 0 || f.end.last < f.Until || pending > 0 {
		return false, nil
	}
	return f.nothing(ctx)
}

// nothing says whether there is nothing to be handled from next to the end of the stream. A
// consumer with nothing pending does not say it: it hears of a message a moment after it is
// stored, and its replica may lag.
func (f *follower) nothing(ctx context.Context) (bool, error) {
	if f.Whole { // each sequence there is was to be handled
		return f.next > f.end.last, nil
	}
	return f.empty(ctx, f.Subjects, f.next, f.end.last)
}

// check learns how far the stream is and whether all of it that matches has been handed
// on. Sequences that were passed over are harmless while the stream still holds the
// first of them. What was sent before a quiet interval began and has not come is lost. Where
// a consumer stays without what the stream has, its replica lags: another one may not.
func (f *follower) check(ctx context.Context, cons jetstream.Consumer, delivered uint64, quiet bool) (err error) {
	if err := f.trimmed(ctx); err != nil {
		return err
	}
	if f.end, err = f.extent(ctx); err != nil {
		return err
	}
	ask, cancel := context.WithTimeout(ctx, lostEvery) // nobody answers for a consumer whose server has gone
	defer cancel()
	info, err := cons.Info(ask)
	if err != nil {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	if quiet && info.Delivered.Consumer > delivered {
		return fmt.Errorf("%w: %d messages were sent and %d have come", errAgain, info.Delivered.Consumer, delivered)
	}
	if info.NumPending > 0 || info.Delivered.Consumer != delivered || f.end.last < f.next {
		return nil
	}
	nothing, err := f.nothing(ctx)
	switch {
	case err != nil:
		return err
	case nothing:
		f.next = f.end.last + 1
	case quiet:
		return fmt.Errorf("%w: it has nothing pending, and the stream goes on to %d", errAgain, f.end.last)
	}
	return nil
}

// trimmed says whether messages were discarded before they could be handed on.
func (f *follower) trimmed(ctx context.Context) error {
	if !f.Discards && !f.Whole || f.gap == 0 {
		return nil
	}
	first, _, err := f.Span(ctx)
	if err != nil {
		return err
	}
	if f.gap < first {
		err := fmt.Errorf("follow %s: %w: %d is wanted, %d is the oldest kept", f.name, bus.ErrTrimmed, f.gap, first)
		if f.Whole {
			err = fmt.Errorf("%w; %s", err, f.Hint(ctx))
		}
		return err
	}
	f.gap = 0
	return nil
}
