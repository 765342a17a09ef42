package writer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
)

// errNotWriter is why a proposal is refused while another registry writes.
var errNotWriter = errors.New("another registry of this namespace writes: connect to that one")

var errFenced = fmt.Errorf("%w: %w: it has put its fence behind ours in the log", errNotWriter, bus.ErrFenced)

// leadProblem is the name of the problem of a registry that cannot lead.
const leadProblem = "leading zookeeper writes"

// lead writes while this process holds the writer's lease, again and again until ctx ends.
func (w *Writer) lead(ctx context.Context) error {
	return bus.Lead(ctx, bus.Leadership{
		Leases: w.leases, Lease: w.cfg.BZID + ".znode.writer", Holder: w.prefix, TTL: w.cfg.Lease,
		Log: w.logger, Health: w.cfg.Health, Problem: leadProblem, LongestPause: 2 * retryLast,
	}, w.term)
}

// term ends with the lease, with ctx, or when the bus fails for good.
func (w *Writer) term(ctx context.Context, term bus.Term) error {
	if err := w.acquire(ctx); err != nil {
		return err
	}
	w.logger.Info("zookeeper writes taken over", "bzid", w.cfg.BZID, "epoch", term.Epoch)
	w.writer.Store(true)
	term.Leading()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { w.expire(ctx); return nil })
	g.Go(func() error { w.sweep(ctx); return nil })
	for _, run := range w.while {
		g.Go(func() error { run(ctx); return nil })
	}
	g.Go(func() error { // its end, always an error, ends the others
		err := w.append(ctx)
		w.writer.Store(false)
		w.fail(errNotWriter)
		return err
	})
	return g.Wait()
}

// fail answers everything in the queue.
func (w *Writer) fail(err error) {
	for _, p := range w.queue.Drain() {
		p.finish(0, nil, err)
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
