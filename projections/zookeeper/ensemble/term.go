package ensemble

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

const (
	compared   = 1000      // paths in one step
	multiOps   = 128       // of one multi
	multiBytes = 512 << 10 // the same; the ensemble takes 1 MiB by default
	maxOwn     = 1000      // runs of its own zxids that a mark lists
	walked     = 2000      // nodes listed under one read lock
)

var errBehind = errors.New("the connection for reads leads to a member that has fallen behind")

var errFenced = errors.New("another mirror writes to this ensemble for the same namespace")

// term is what one mirror knows while it may write.
type term struct {
	*Mirror
	syncState
	s       *session
	w       *readConn
	version int32             // of the mark's node
	stale   bool              // the mark over there says less than is known
	later   map[string]uint64 // paths that could not be written, with the sequence that wrote them here; 0: removals
	until   uint64            // where this round ends, once only its last multi is left; 0: before that
	retry   map[string]int64  // by path: mzxid of an import that is to be tried again
	keep    *[]string         // not nil: removals are noted here instead of made
	whole   bool              // everything is being compared: access lists too
	newest  int64             // zxid of the last write over there
}

// op is what is written for one path.
type op struct {
	path string
	v    action
	ops  []any
	size int
	seq  uint64 // that wrote it here; 0: it is gone
}

// round compares whatever has been touched.
func (r *term) round(ctx context.Context) error {
	zxid, err := r.w.barrier(ctx, r.node)
	if err != nil {
		return err
	}
	if zxid < r.newest { // a member that was the leader and does not know better answers so
		return fmt.Errorf("%w: %x, %x has been written", errBehind, zxid, r.newest)
	}
	var seq uint64
	var paths []string
	var all bool
	r.tree.Read(func(t view.State) {
		seq = t.Seq
		paths, all = r.take()
	})
	touched := all || len(paths) > 0
	if all {
		err = r.full(ctx)
	} else {
		err = r.some(ctx, paths, seq)
	}
	if err != nil {
		return err
	}
	if all || r.Seq != 0 {
		r.synced.Store(seq)
		for _, written := range r.later {
			if written > 0 && written <= seq {
				seq = written - 1
			}
		}
		r.Seq = max(r.Seq, seq)
		maps.DeleteFunc(r.there, func(_ string, written uint64) bool { return written <= r.Seq })
	}
	for _, mzxid := range r.retry {
		zxid = min(zxid, mzxid-1)
	}
	if r.Zxid < zxid {
		r.advance(zxid)
		for path, mzxid := range r.handled {
			if mzxid <= zxid {
				delete(r.handled, path)
			}
		}
	}
	if len(r.Own) > maxOwn && len(r.retry) > 0 { // an import has been waiting for very long
		r.logger.Warn("zookeeper bridge gives up imports that cannot be made", "paths", len(r.retry))
		clear(r.retry)
	}
	r.stale = r.stale || touched
	return nil
}

// some compares the paths, which are all that was touched up to seq.
func (r *term) some(ctx context.Context, paths []string, seq uint64) error {
	for len(paths) > compared {
		if err := r.compare(ctx, paths[:compared], 0); err != nil {
			return err
		}
		paths = paths[compared:]
	}
	if r.Seq == 0 { // never all of it
		seq = 0
	}
	return r.compare(ctx, paths, seq)
}

// full compares everything: first what the mirror is to hold, because a predecessor's
// session may be about to end, then all that is on both sides, then removals, children
// before their parents.
func (r *term) full(ctx context.Context) error {
	began := time.Now()
	r.whole = true
	defer func() { r.whole = false }()
	var held []string
	r.tree.Read(func(t view.State) {
		for owner := range t.EphemeralOwners() {
			for _, path := range t.Ephemerals(owner) {
				if r.inside(path) {
					held = append(held, path)
				}
			}
		}
	})
	slices.Sort(held)
	for chunk := range slices.Chunk(held, compared) {
		if err := r.compare(ctx, chunk, 0); err != nil {
			return err
		}
	}
	paths, err := r.union(ctx)
	if err != nil {
		return err
	}
	var removals []string
	r.keep = &removals
	for chunk := range slices.Chunk(paths, compared) {
		if err = r.compare(ctx, chunk, 0); err != nil {
			break
		}
	}
	r.keep = nil
	if err != nil {
		return err
	}
	slices.Reverse(removals)
	for chunk := range slices.Chunk(removals, compared) {
		if err := r.compare(ctx, chunk, 0); err != nil {
			return err
		}
	}
	took := time.Since(began)
	r.Mirror.mu.Lock()
	st := &r.Mirror.status
	st.Nodes, st.Held, st.Compared, st.TookMS = len(paths), len(held), time.Now(), took.Milliseconds()
	drifts, stuck := st.Drifts, len(r.stuck)
	r.Mirror.mu.Unlock()
	r.logger.Info("zookeeper mirror has compared everything", "nodes", len(paths), "held", len(held), "took", took, "drifts", drifts, "stuck", stuck)
	return nil
}

// union is every path on either side, parents first. What changes while it is being
// listed is touched as well.
func (r *term) union(ctx context.Context) ([]string, error) {
	var paths []string
	for _, root := range r.cfg.Roots {
		there, err := r.w.below(ctx, root)
		if err != nil {
			return nil, err
		}
		paths = append(paths, there...)
		for stack := []string{root}; len(stack) > 0; {
			r.tree.Read(func(t view.State) {
				for n := 0; n < walked && len(stack) > 0; n++ {
					path := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					st, ok := t.Stat(path)
					if !ok {
						continue
					}
					paths = append(paths, path)
					if st.NumChildren > 0 {
						for _, name := range t.Children(path) {
							stack = append(stack, path+"/"+name)
						}
					}
				}
			})
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// compare brings both sides of the paths into line. until is where that brings the mark,
// 0 while there are others before it.
func (r *term) compare(ctx context.Context, paths []string, until uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	them, err := r.w.get(ctx, paths)
	if err != nil {
		return err
	}
	us := r.localNodes(paths)
	if err := r.lists(ctx, paths, us, them); err != nil {
		return err
	}
	w := work{term: r}
	for i, path := range paths {
		w.judge(path, us[i], them[i])
	}
	r.drifted(w.drifts)
	r.loosen(w.agreed)
	if err := r.bring(ctx, w.imports); err != nil {
		return err
	}
	slices.SortFunc(w.removals, func(a, b op) int { return cmp.Compare(b.path, a.path) })
	if err := r.writeAll(ctx, slices.Concat(w.takeovers, w.removals, w.puts), until); err != nil {
		return err
	}
	return r.relistAll(ctx, w.relists)
}

// lists reads the access lists that decisions need: of nodes that may have been made
// in the ensemble, of those whose lists were not set equally often, and of all while everything is
// being compared.
func (r *term) lists(ctx context.Context, paths []string, us []*localNode, them []*remoteNode) error {
	var asked []string
	var nodes []*remoteNode
	for i, t := range them {
		if t == nil || t.opaque {
			continue
		}
		o := us[i]
		if o == nil && t.mzxid > r.Zxid || o != nil && (r.whole || t.aversion != o.aversion || r.createdByOther(t)) {
			asked, nodes = append(asked, paths[i]), append(nodes, t)
		}
	}
	return r.w.acls(ctx, asked, nodes)
}

// createdByOther says that the node as it stands there was made by somebody else.
func (r *term) createdByOther(t *remoteNode) bool { return t.czxid > r.Zxid && !r.isOwn(t.czxid) }

// postpone has a path compared again after a while.
func (r *term) postpone(path string, v action, seq uint64, err error) {
	r.later[path] = seq
	r.stick(path, v.String(), err)
}

func factACL(list []wire.ACL) (acl []*znode.ACL) {
	for _, a := range list {
		acl = append(acl, &znode.ACL{Perms: a.Perms, Scheme: a.Scheme, Id: a.ID})
	}
	return acl
}

func (o *localNode) request(at string) *zk.CreateRequest {
	q := &zk.CreateRequest{Path: at, Data: o.data, Acl: wireACL(o.acl)}
	if o.held {
		q.Flags = zk.FlagEphemeral
	}
	return q
}

// localNodes reads our side; absent nodes are nil.
func (r *term) localNodes(paths []string) []*localNode {
	nodes := make([]*localNode, len(paths))
	r.tree.Read(func(t view.State) {
		for i, path := range paths {
			data, st, ok := t.Get(path)
			if !ok {
				continue
			}
			acl, _, _ := t.ACL(path)
			o := &localNode{data: slices.Clone(data), acl: acl, aversion: st.Aversion, created: uint64(st.Czxid), written: uint64(st.Mzxid), children: st.NumChildren}
			from, last, external := t.Imported(path)
			if external {
				o.external, o.asImported, o.imported = true, last, from.Mzxid
			}
			if tree.IsEphemeral(st.EphemeralOwner) {
				if external && from.Owner == st.EphemeralOwner {
					o.foreign = from.Owner
				} else {
					o.held = true
				}
			}
			nodes[i] = o
		}
	})
	return nodes
}

// writeAll writes in order, as many at a time as a multi takes; the last one brings the
// mark to until.
func (r *term) writeAll(ctx context.Context, all []op, until uint64) error {
	defer func() { r.until = 0 }()
	for len(all) > 0 {
		n := oneMulti(all)
		if r.until = 0; n == len(all) {
			r.until = until
		}
		if err := r.write(ctx, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// oneMulti is how many of them go into one multi.
func oneMulti(all []op) (n int) {
	for size := 0; n < len(all) && n < multiOps; n++ {
		if size += all[n].size; n > 0 && size > multiBytes {
			break
		}
	}
	return n
}

// seen is a foreign write on its way to the log.
type seen struct {
	path    string
	t       *remoteNode
	list    bool // of the access list alone
	message *znode.Imported
}

// bring imports, in the order of the paths.
func (r *term) bring(ctx context.Context, all []seen) error {
	if len(all) == 0 {
		return nil
	}
	messages := make([]*znode.Imported, len(all))
	for i, s := range all {
		messages[i] = s.message
	}
	for i, err := range r.cfg.Importer.Import(ctx, messages) {
		s := all[i]
		switch {
		case err == nil:
			r.imported("done")
			if s.t != nil && !s.list { // it may go there again before anybody looks
				r.tree.Read(func(t view.State) {
					// What was written here since the import was never there.
					if data, st, ok := t.Get(s.path); ok && bytes.Equal(data, s.t.data) {
						r.saw(s.path, uint64(st.Mzxid))
					}
				})
			}
			r.touch(s.path)
		case errors.Is(err, ErrRefused):
			r.imported("refused")
			r.logger.Warn("foreign zookeeper write refused; the ensemble is put right", "path", s.path, "kind", s.message.GetKind(), "err", err)
			switch {
			case s.list:
				r.kept[s.path] = s.t.aversion
			case s.t == nil:
				r.refused[s.path] = true
			}
			r.touch(s.path)
		default:
			r.imported("failed")
			r.logger.Warn("foreign zookeeper write not imported; trying again", "path", s.path, "err", err)
			if s.t != nil && !s.list {
				r.retry[s.path] = s.t.mzxid
			}
			r.later[s.path] = 0
		}
	}
	return ctx.Err()
}
