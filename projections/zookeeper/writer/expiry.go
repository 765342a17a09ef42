package writer

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// expire proposes the end of sessions that were silent for too long. While the tree is
// locked nobody's requests are read, so that time is nobody's silence.
func (w *Writer) expire(ctx context.Context) {
	for retry.Sleep(ctx, sessionTick) == nil {
		asked := w.open.since()
		w.tree.Read(func(view.State) {})
		w.open.excuse(w.open.since() - asked)
		for _, id := range w.open.silent() {
			w.enqueue(&proposal{
				event: &znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: id, Reason: znode.Expired}}},
				done: func(_ uint64, _ *tree.Outcome, err error) {
					if err != nil {
						w.open.spare(id)
						return
					}
					w.logger.Info("zookeeper session expired", "session", fmt.Sprintf("0x%x", id))
				},
			})
		}
	}
}

// sweep proposes the end of containers that have lost their children and of nodes whose
// time to live is over.
func (w *Writer) sweep(ctx context.Context) {
	for retry.Sleep(ctx, w.cfg.Sweep) == nil {
		var over []string
		w.tree.Read(func(t view.State) { over = t.Over(w.clock.now()) })
		swept := make(chan struct{}, len(over))
		for _, path := range over {
			w.enqueue(&proposal{
				event: &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: []*znode.Op{
					{Op: &znode.Op_DeleteContainer{DeleteContainer: &znode.DeleteContainer{Path: path}}}}}}},
				done: func(uint64, *tree.Outcome, error) { swept <- struct{}{} },
			})
		}
		for range over { // or the next look would propose them again
			select {
			case <-swept:
			case <-ctx.Done():
				return
			}
		}
	}
}
