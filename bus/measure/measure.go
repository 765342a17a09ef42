// Package measure appends and reads for benchmarks of the log: through a bus, and with nats.go
// alone, which is their baseline.
package measure

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
)

// draft is the one of the benchmarks, on an aggregate per caller.
func draft(caller int) bus.Draft {
	return bus.Draft{
		Subject: model.Subject("bench", fmt.Sprint(caller)),
		Event:   &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "one event of a benchmark, of a usual size: about two hundred bytes with what stands around it, neither less nor more"}}},
		Header:  events.Header{Source: "bench"},
		Expect:  bus.Any,
	}
}

// Append appends n events from so many callers, each waiting for its own ack.
func Append(ctx context.Context, b bus.Bus, callers, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	errc := make(chan error, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			d := draft(c)
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

// RawPublish publishes the same n events with nats.go itself, so many of them
// waiting for an ack at a time: the baseline of Append.
func RawPublish(ctx context.Context, nc *nats.Conn, pending, n int) error {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(pending))
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
		ready, err := wire.Prepare([]bus.Draft{draft(i % max(pending, 1))})
		if err != nil {
			return err
		}
		r := ready[0]
		m := &nats.Msg{Subject: r.Subject, Header: wire.Encode(r.Header, r.Subject, time.Now()), Data: r.Data}
		a, err := js.PublishMsgAsync(m, jetstream.WithStallWait(5*time.Second)) // on a slow disk it takes longer than the usual 200 ms until another may be pending
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

// RawReplay reads the first n messages of the log with an ordered consumer of
// nats.go and decodes nothing: the baseline of Follow.
func RawReplay(ctx context.Context, nc *nats.Conn, n int) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	cons, err := js.OrderedConsumer(ctx, wire.LogStream, jetstream.OrderedConsumerConfig{})
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
