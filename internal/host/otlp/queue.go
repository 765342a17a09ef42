package otlp

import (
	"context"
	"time"
)

const (
	queueRoom  = 2048 // items that wait while a batch is under way
	queueBatch = 512
	queueEvery = time.Second // a batch that is not full goes then
)

// queue hands items to send, in batches, from one goroutine. Whoever adds never waits: what
// finds it full is dropped and counted.
type queue[T any] struct {
	items chan T
	send  func(context.Context, []T) error // bounds itself, too
	tally tally

	quit  chan struct{}      // closed by stop: nothing is added any more
	abort context.CancelFunc // ends the batch under way
	done  chan struct{}
}

func newQueue[T any](t tally, send func(context.Context, []T) error) *queue[T] {
	ctx, abort := context.WithCancel(context.Background())
	q := &queue[T]{items: make(chan T, queueRoom), send: send, tally: t, quit: make(chan struct{}), abort: abort, done: make(chan struct{})}
	go q.run(ctx)
	return q
}

func (q *queue[T]) add(item T) {
	select {
	case <-q.quit:
		q.tally.dropped(1)
		return
	default:
	}
	select {
	case q.items <- item:
	default:
		q.tally.dropped(1)
	}
}

func (q *queue[T]) run(ctx context.Context) {
	defer close(q.done)
	tick := time.NewTicker(queueEvery)
	defer tick.Stop()
	batch := make([]T, 0, queueBatch)
	hand := func() {
		if len(batch) > 0 {
			q.tally.sent(len(batch), q.send(ctx, batch))
			clear(batch)
			batch = batch[:0]
		}
	}
	for {
		select {
		case item := <-q.items:
			if batch = append(batch, item); len(batch) == queueBatch {
				hand()
			}
		case <-tick.C:
			hand()
		case <-q.quit:
			for left := len(q.items); left > 0 && ctx.Err() == nil; left-- {
				if batch = append(batch, <-q.items); len(batch) == queueBatch {
					hand()
				}
			}
			hand()
			q.tally.dropped(len(q.items))
			return
		}
	}
}

// stop sends what waits until ctx ends, and drops the rest. It is called once.
func (q *queue[T]) stop(ctx context.Context) {
	close(q.quit)
	stopAbort := context.AfterFunc(ctx, q.abort)
	<-q.done
	stopAbort()
	q.abort()
}
