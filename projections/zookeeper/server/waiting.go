package server

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// bytesBudget bounds the memory of all connections' requests. Whoever is over it is not
// read, and loses nothing by it.
type bytesBudget struct {
	limit int64
	sem   *semaphore.Weighted
	used  atomic.Int64
}

func newBytesBudget(limit int64) *bytesBudget {
	return &bytesBudget{limit: limit, sem: semaphore.NewWeighted(limit)}
}

// share is as much of n as the budget holds: what is larger than all of it goes alone.
func (b *bytesBudget) share(n int64) int64 { return min(n, b.limit) }

func (b *bytesBudget) try(n int64) bool {
	if !b.sem.TryAcquire(n) {
		return false
	}
	b.used.Add(n)
	return true
}

func (b *bytesBudget) wait(ctx context.Context, n int64) error {
	if err := b.sem.Acquire(ctx, n); err != nil {
		return err
	}
	b.used.Add(n)
	return nil
}

func (b *bytesBudget) giveBack(n int64) {
	if n > 0 {
		b.used.Add(-n)
		b.sem.Release(n)
	}
}

const (
	requestBytes = 512 // of a request besides its frame
	// multiFactor is how much larger a multi of the smallest parts is once it is decoded.
	multiFactor = 16
)

// cost is what a request whose body has n bytes takes while it waits.
func cost(op wire.Op, n int) int64 {
	if op == wire.OpMulti {
		n *= multiFactor
	}
	return int64(n) + requestBytes
}

// take takes n bytes of the budget for the connection, which waits if it must; on an
// error it has taken none.
func (c *conn) take(ctx context.Context, from *bytesBudget, n int64) (taken int64, err error) {
	n = from.share(n)
	if from.try(n) {
		return n, nil
	}
	c.s.stats.throttled.Add(1)
	if err := c.pauseReading(ctx, func(ctx context.Context) error { return from.wait(ctx, n) }); err != nil {
		return 0, err
	}
	return n, nil
}

// pauseReading runs wait, with everything written that is answered and with the session
// kept alive: it is not the client who is silent.
func (c *conn) pauseReading(ctx context.Context, wait func(context.Context) error) error {
	c.out.Flush() // nothing may lie about while the reader waits
	c.read = time.Time{}
	return c.attended(ctx, wait)
}

// attended runs wait with a context that ends when the client hangs up, which nobody
// else would notice while the connection is not read, and returns wait's error. Only the
// connection's reader may call it. A client that has filled the input buffer before it
// hung up is not noticed.
func (c *conn) attended(ctx context.Context, wait func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := c.hangUp(); err != nil {
			cancel(err)
		}
	}()
	done := make(chan struct{})
	alive := make(chan struct{})
	go func() {
		defer close(alive)
		c.keepAlive(done, cancel)
	}()
	err := wait(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	close(done)
	<-alive
	// A connection that is closed by now fails its next read: what wait has got is the
	// caller's in any case.
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	<-watched
	_ = c.nc.SetReadDeadline(time.Time{})
	return err
}

// hangUp reads ahead until the client has hung up; nil: the read deadline has come, or
// nothing more fits.
func (c *conn) hangUp() error {
	for {
		n := c.br.Buffered() + 1
		if n > readBytes {
			return nil
		}
		if _, err := c.br.Peek(n); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return err
		}
	}
}

// keepAlive touches the connection's session until done is closed, and ends the wait of
// a connection that was closed here.
func (c *conn) keepAlive(done <-chan struct{}, cancel context.CancelCauseFunc) {
	t := time.NewTicker(max(c.s.cfg.MinSessionTimeout/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-c.out.Gone():
			cancel(net.ErrClosed)
			return
		case now := <-t.C:
			if c.Session() != 0 {
				c.s.touch(c, now)
			}
		}
	}
}
