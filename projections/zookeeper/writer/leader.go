package writer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
)

// errNotWriter is why a proposal is refused while another registry writes.
var errNotWriter = errors.New("another registry of this namespace writes: connect to that one")

var (
	errLeaseLost = errors.New("the writer's lease is lost")
	errFenced    = fmt.Errorf("%w: it has put its fence behind ours in the log", errNotWriter)
)

// lead asks for the lease again and again until ctx ends, and writes while it holds it.
func (w *Writer) lead(ctx context.Context) error {
	wait := retry.New(retryLast/2, 2*retryLast)
	for ctx.Err() == nil {
		began := time.Now()
		lease, release, err := w.leases.Acquire(ctx, w.cfg.BZID+".znode.writer", w.prefix, w.cfg.Lease)
		if err == nil {
			err = w.term(ctx, lease)
			release()
		}
		if ctx.Err() == nil {
			if time.Since(began) > w.cfg.Lease {
				wait.Reset() // it went well for a while
			}
			w.logger.Warn("zookeeper writes given up; trying for the lease again", "bzid", w.cfg.BZID, "err", err)
			_ = wait.Wait(ctx) // the loop asks ctx
		}
	}
	return nil
}

// term is one term: it ends with the lease, with ctx, or when the bus fails for good.
func (w *Writer) term(ctx context.Context, lease bus.Lease) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case <-lease.Lost:
			return errLeaseLost
		case <-ctx.Done():
			return nil
		}
	})
	g.Go(func() error {
		if err := w.acquire(ctx); err != nil {
			return err
		}
		w.logger.Info("zookeeper writes taken over", "bzid", w.cfg.BZID, "epoch", lease.Epoch)
		w.writer.Store(true)
		g.Go(func() error { w.expire(ctx); return nil })
		g.Go(func() error { w.sweep(ctx); return nil })
		for _, run := range w.while {
			g.Go(func() error { run(ctx); return nil })
		}
		err := w.append(ctx)
		w.writer.Store(false)
		w.fail(errNotWriter)
		return err
	})
	return g.Wait()
}

// fail answers everything in the queue.
func (w *Writer) fail(err error) {
	for {
		select {
		case p := <-w.queue:
			p.finish(0, nil, err)
		default:
			return
		}
	}
}

// newFence is the proposal with which a term begins: nobody's, and of nothing.
func newFence() *znode.Event {
	return &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Multi: true}}}
}

func isFence(e *znode.Event) bool {
	p := e.GetProposed()
	return p.GetMulti() && p.GetSession() == 0 && len(p.GetOps()) == 0
}

// fenced says whether somebody else's term has begun since ours did.
func (w *Writer) fenced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writer.Load() && !strings.HasPrefix(w.fence, w.prefix)
}

// acquire catches up and appends a fence, so that whatever an earlier writer has on its
// way conflicts, and grants every session one full time-out.
func (w *Writer) acquire(ctx context.Context) error {
	fence := &proposal{event: newFence(), done: func(uint64, *tree.Outcome, error) {}}
	if err := w.catchUp(ctx); err != nil {
		return err
	}
	if err := w.store(ctx, [][]*proposal{{fence}}); err != nil {
		return err
	}
	if err := w.tree.Wait(ctx, w.last); err != nil {
		return err
	}
	w.tree.Read(w.open.reset)
	return nil
}

func (w *Writer) catchUp(ctx context.Context) error {
	wait := retry.New(retryFirst, retryLast)
	for {
		last, err := w.log.LastOf(ctx, w.subject)
		if err == nil {
			w.last = last
			return w.tree.Wait(ctx, last)
		}
		if !bus.Retryable(err) || wait.Wait(ctx) != nil {
			return fmt.Errorf("find the end of %s: %w", w.subject, err)
		}
	}
}
