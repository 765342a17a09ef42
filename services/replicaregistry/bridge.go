package replicaregistry

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	znodepb "github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/follow"
	"github.com/monolith-go/monolith/projections/zkmirror"
	"github.com/monolith-go/monolith/projections/znode"
	"github.com/monolith-go/monolith/services"
)

// newMirror is the mirror into a real ensemble that the configuration asks for, nil for
// none. It must be made before the tree runs.
func newMirror(cfg ZKMirror, env services.Env, tree *follow.Follower[znode.State], w *writes) (*zkmirror.Mirror, error) {
	if len(cfg.Servers) == 0 {
		return nil, nil
	}
	auth, err := cfg.auth()
	if err != nil {
		return nil, err
	}
	c := zkmirror.Config{
		Servers: cfg.Servers, Chroot: cfg.Chroot, BZID: env.BZID, Roots: cfg.Roots, Auth: auth,
		Session: cfg.Session, Log: env.Bus.Log(), Metrics: env.Metrics,
	}
	if cfg.Bridge {
		c.Importer = bridge{w}
	}
	return zkmirror.New(c, tree, env.Log)
}

// bridge makes facts of what foreign clients write in the ensemble. A write to a path
// that shows a service's fact becomes a command to that service, as it does at our own
// port; any other is an Imported.
type bridge struct{ w *writes }

// Import is zkmirror.Importer's.
func (b bridge) Import(ctx context.Context, seen []*znodepb.Imported) []error {
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
		b.w.Propose(e, func(_ uint64, o *znode.Outcome, err error) {
			switch {
			case errors.Is(err, bus.ErrTooLarge), errors.Is(err, events.ErrInvalid):
				err = fmt.Errorf("%w: %w", zkmirror.ErrRefused, err)
			case err == nil && o != nil && o.Code != znode.CodeOK:
				err = fmt.Errorf("%w with code %d", zkmirror.ErrRefused, o.Code)
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
func (b bridge) event(m *znodepb.Imported) (*znodepb.Event, error) {
	if _, routed := b.w.route.target(m.GetPath()); !routed {
		return &znodepb.Event{Body: &znodepb.Event_Imported{Imported: m}}, nil
	}
	op := &znodepb.Op{}
	exists := false
	b.w.tree.Read(func(t znode.State) { _, exists = t.Stat(m.GetPath()) })
	switch {
	case m.GetKind() == znodepb.Imported_DELETED:
		op.Op = &znodepb.Op_Delete{Delete: &znodepb.Delete{Path: m.GetPath(), Version: -1}}
	case m.GetOwner() != 0:
		return nil, fmt.Errorf("%w: an ephemeral node cannot stand for a service's fact", zkmirror.ErrRefused)
	case exists:
		op.Op = &znodepb.Op_SetData{SetData: &znodepb.SetData{Path: m.GetPath(), Data: m.GetData(), Version: -1}}
	default:
		op.Op = &znodepb.Op_Create{Create: &znodepb.Create{Path: m.GetPath(), Data: m.GetData(), Acl: m.GetAcl()}}
	}
	return &znodepb.Event{Body: &znodepb.Event_Proposed{Proposed: &znodepb.Proposed{Ops: []*znodepb.Op{op}}}}, nil
}
