package writer

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Importer makes facts of what foreign clients write in a real ensemble.
func (w *Writer) Importer() ensemble.Importer { return bridge{w} }

// bridge makes facts of what foreign clients write in the ensemble. A write to a path
// that shows a service's fact becomes a command to that service, as it does at our own
// port; any other is an Imported, and so is an access list on any path: that is nobody's
// fact, here as there.
type bridge struct{ w *Writer }

// Import is ensemble.Importer's.
func (b bridge) Import(ctx context.Context, seen []*znode.Imported) []error {
	type answer struct {
		i   int
		err error
	}
	answers := make(chan answer, len(seen)) // whoever answers late must not wait
	errs := make([]error, len(seen))
	for i, m := range seen {
		errs[i] = errStopped
		e, err := b.event(m)
		if err != nil {
			answers <- answer{i, err}
			continue
		}
		b.w.Propose(e, func(_ uint64, o *tree.Outcome, err error) {
			switch {
			case errors.Is(err, bus.ErrTooLarge), errors.Is(err, events.ErrInvalid):
				err = fmt.Errorf("%w: %w", ensemble.ErrRefused, err)
			case err == nil && o != nil && o.Code != wire.OK:
				err = fmt.Errorf("%w with code %d", ensemble.ErrRefused, o.Code)
			}
			answers <- answer{i, err}
		})
	}
	for range seen {
		select {
		case a := <-answers:
			errs[a.i] = a.err
		case <-ctx.Done():
			return errs
		}
	}
	return errs
}

// event is what a foreign write is proposed as.
func (b bridge) event(m *znode.Imported) (*znode.Event, error) {
	if _, routed := b.w.route.target(m.GetPath()); !routed || m.GetKind() == znode.Imported_ACL_SET {
		return &znode.Event{Body: &znode.Event_Imported{Imported: m}}, nil
	}
	op := &znode.Op{}
	exists := false
	b.w.tree.Read(func(t view.State) { _, exists = t.Stat(m.GetPath()) })
	switch {
	case m.GetKind() == znode.Imported_DELETED:
		op.Op = &znode.Op_Delete{Delete: &znode.Delete{Path: m.GetPath(), Version: -1}}
	case m.GetOwner() != 0:
		return nil, fmt.Errorf("%w: an ephemeral node cannot stand for a service's fact", ensemble.ErrRefused)
	case exists:
		op.Op = &znode.Op_SetData{SetData: &znode.SetData{Path: m.GetPath(), Data: m.GetData(), Version: -1}}
	default:
		op.Op = &znode.Op_Create{Create: &znode.Create{Path: m.GetPath(), Data: m.GetData(), Acl: m.GetAcl()}}
	}
	return &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: []*znode.Op{op}}}}, nil
}
