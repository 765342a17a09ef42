package ensemble

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// relist is an access list that is to be set over there.
type relist struct {
	path string
	acl  []wire.ACL
	have int32 // its version there
	want int32 // ours: lists are set until the versions are the same, once at least
}

// relistAll sets access lists over there. No multi of ZooKeeper takes that operation, so
// the mark cannot go with it: it is written just before, which stops a mirror that was
// fenced, and each list is set only in place of the version that was compared. What a
// crash leaves undone the next comparison finds.
func (r *term) relistAll(ctx context.Context, all []relist) error {
	if len(all) == 0 {
		return nil
	}
	if err := r.write(ctx, nil); err != nil {
		return err
	}
	for _, l := range all {
		for v := l.have; v == l.have || v < l.want; v++ {
			_, err := call(ctx, r.s, func() (*zk.Stat, error) { return r.s.conn.SetACL(r.cfg.Chroot+l.path, wireACL(l.acl), v) })
			if err == nil {
				r.writes.Inc()
				if kept, refused := r.kept[l.path]; refused && kept == v {
					r.kept[l.path] = v + 1 // ours stands there again, which is nothing to import
				}
				continue
			}
			if ctx.Err() != nil || errors.Is(err, errLost) {
				return err
			}
			r.postpone(l.path, setACL, 0, err)
			break
		}
	}
	return nil
}

func wireACL(list []wire.ACL) (acl []zk.ACL) {
	for _, a := range list {
		acl = append(acl, zk.ACL{Perms: a.Perms, Scheme: a.Scheme, ID: a.ID})
	}
	return acl
}
