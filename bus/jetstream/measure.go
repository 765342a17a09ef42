//go:build !nobench

package jetstream

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
)

// measured is the draft of the benchmarks, on an aggregate per caller.
func measured(caller int) bus.Draft {
	return bus.Draft{
		Subject: model.Subject("bench", fmt.Sprint(caller)),
		Event:   &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "one event of a benchmark, of a usual size: about two hundred bytes with what stands around it, neither less nor more"}}},
		Header:  events.Header{Source: "bench"},
		Expect:  bus.Any,
	}
}

// MeasureAppend appends n events from so many callers, each waiting for its own ack.
func MeasureAppend(ctx context.Context, b *Bus, callers, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	errc := make(chan error, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			d := measured(c)
			for left.Add(-1) >= 0 {
				if _, err := b.Log().Append(ctx, d); err != nil {
					errc <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errc)
	return <-errc
}

// MeasureRawPublish publishes the same n events with nats.go itself, so many of them
// waiting for an ack at a time: the baseline of MeasureAppend.
func MeasureRawPublish(ctx context.Context, b *Bus, pending, n int) error {
	js, err := jetstream.New(b.nc, jetstream.WithPublishAsyncMaxPending(pending))
	if err != nil {
		return err
	}
	defer js.CleanupPublisher()
	acks := make(chan jetstream.PubAckFuture, pending)
	result := make(chan error, 1)
	go func() {
		var first error
		for a := range acks {
			select {
			case <-a.Ok():
			case err := <-a.Err():
				first = err
			case <-ctx.Done():
				first = ctx.Err()
			}
		}
		result <- first
	}()
	for i := range n {
		ready, err := wire.Prepare([]bus.Draft{measured(i % max(pending, 1))})
		if err != nil {
			return err
		}
		r := ready[0]
		a, err := js.PublishMsgAsync(outgoing{subject: r.Subject, header: wire.Encode(r.Header, r.Subject, time.Now()), data: r.Data, expect: bus.Any}.message(),
			jetstream.WithStallWait(requestTimeout)) // on a slow disk it takes longer than the usual 200 ms until another may be pending
		if err != nil {
			close(acks)
			<-result
			return err
		}
		if pending == 1 {
			select {
			case <-a.Ok():
			case err := <-a.Err():
				close(acks)
				<-result
				return err
			}
			continue
		}
		acks <- a
	}
	close(acks)
	return <-result
}

// MeasureRawReplay reads the first n messages of the log with an ordered consumer of
// nats.go and decodes nothing: the baseline of Follow.
func MeasureRawReplay(ctx context.Context, b *Bus, n int) error {
	cons, err := b.js.OrderedConsumer(ctx, wire.LogStream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	it, err := cons.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	for range n {
		if _, err := it.Next(jetstream.NextContext(ctx)); err != nil {
			return err
		}
	}
	return nil
}
