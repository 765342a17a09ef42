package zkserver

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/internal/jute"
	"github.com/monolith-go/monolith/projections/znode"
)

// handler answers one request of an open session, or returns why the connection ends.
type handler func(ctx context.Context, c *conn, xid int32, r *jute.Reader) error

// part is one read of a node: decoded first, run on a tree later.
type part struct {
	path string
	run  func(t znode.State, path string) (func(*jute.Writer), jute.Code)
}

// dispatch is the table of operations; what is not in it is Unimplemented.
func (s *Server) dispatch() map[jute.Op]handler {
	return map[jute.Op]handler{
		jute.OpExists:       s.reading(s.exists),
		jute.OpGetData:      s.reading(s.getData),
		jute.OpGetChildren:  s.reading(s.getChildren),
		jute.OpGetChildren2: s.reading(s.getChildren2),
		jute.OpGetACL:       s.reading(s.getACL),
		jute.OpMultiRead:    s.multiRead,
		jute.OpSync:         s.sync,
		jute.OpPing:         s.ping,
		jute.OpAuth:         s.auth,
		jute.OpSetWatches:   s.setWatches(false),
		jute.OpSetWatches2:  s.setWatches(true),
		jute.OpCloseSession: s.closeSession,

		jute.OpCreate:          refuse(jute.NotReadOnly),
		jute.OpCreate2:         refuse(jute.NotReadOnly),
		jute.OpCreateContainer: refuse(jute.NotReadOnly),
		jute.OpCreateTTL:       refuse(jute.NotReadOnly),
		jute.OpDelete:          refuse(jute.NotReadOnly),
		jute.OpDeleteContainer: refuse(jute.NotReadOnly),
		jute.OpSetData:         refuse(jute.NotReadOnly),
		jute.OpSetACL:          refuse(jute.NotReadOnly),
		jute.OpCheck:           refuse(jute.NotReadOnly),
		jute.OpMulti:           refuse(jute.NotReadOnly),
		jute.OpReconfig:        refuse(jute.NotReadOnly),
	}
}

func opName(op jute.Op) string {
	names := map[jute.Op]string{
		jute.OpExists: "EXIS", jute.OpGetData: "GETD", jute.OpGetChildren: "GETC", jute.OpGetChildren2: "GETC",
		jute.OpGetACL: "GETA", jute.OpSync: "SYNC", jute.OpPing: "PING", jute.OpSetWatches: "SETW",
		jute.OpSetWatches2: "SETW", jute.OpMultiRead: "MULR", jute.OpCloseSession: "CLOS", jute.OpAuth: "AUTH",
	}
	if n, ok := names[op]; ok {
		return n
	}
	return fmt.Sprintf("OP%d", uint32(op))
}

// refuse answers with the same code whatever is asked.
func refuse(code jute.Code) handler {
	return func(_ context.Context, c *conn, xid int32, _ *jute.Reader) error {
		c.fail(xid, code)
		return nil
	}
}

// reading turns a decoder of one part into a handler. Paths of past trees are resolved
// before the tree is locked.
func (s *Server) reading(decode func(c *conn, r *jute.Reader) part) handler {
	return func(ctx context.Context, c *conn, xid int32, r *jute.Reader) error {
		p := decode(c, r)
		if r.Err() != nil {
			return r.Err()
		}
		past, path, code := s.resolve(ctx, p.path)
		if code != jute.OK {
			c.fail(xid, code)
			return nil
		}
		c.read(xid, func(t znode.State) (func(*jute.Writer), jute.Code) {
			if past != nil {
				t = *past
			}
			return p.run(t, path)
		})
		return nil
	}
}

// watch sets a watch if one is wanted; the past does not change.
func (s *Server) watch(c *conn, k kind, asked string, want bool) jute.Code {
	if !want || isPast(asked) || s.watches.add(c, watchKey{k, asked}) {
		return jute.OK
	}
	return jute.ThrottledOp
}

func stat(st znode.Stat) *jute.Stat {
	return &jute.Stat{
		Czxid: st.Czxid, Mzxid: st.Mzxid, Ctime: st.Ctime, Mtime: st.Mtime,
		Version: st.Version, Cversion: st.Cversion, Aversion: st.Aversion, EphemeralOwner: st.EphemeralOwner,
		DataLength: st.DataLength, NumChildren: st.NumChildren, Pzxid: st.Pzxid,
	}
}

func (s *Server) exists(c *conn, r *jute.Reader) part {
	var q jute.PathWatch
	q.Decode(r)
	return part{q.Path, func(t znode.State, path string) (func(*jute.Writer), jute.Code) {
		_, st, ok := t.Get(path)
		if code := s.watch(c, onData, q.Path, q.Watch); code != jute.OK {
			return nil, code
		}
		if !ok {
			return nil, jute.NoNode
		}
		return stat(st).Encode, jute.OK
	}}
}

func (s *Server) getData(c *conn, r *jute.Reader) part {
	var q jute.PathWatch
	q.Decode(r)
	return part{q.Path, func(t znode.State, path string) (func(*jute.Writer), jute.Code) {
		data, st, ok := t.Get(path)
		if !ok {
			return nil, jute.NoNode
		}
		if code := s.watch(c, onData, q.Path, q.Watch); code != jute.OK {
			return nil, code
		}
		return func(w *jute.Writer) {
			if data == nil {
				data = []byte{}
			}
			w.Buffer(data)
			stat(st).Encode(w)
		}, jute.OK
	}}
}

func (s *Server) getChildren(c *conn, r *jute.Reader) part  { return s.children(c, r, false) }
func (s *Server) getChildren2(c *conn, r *jute.Reader) part { return s.children(c, r, true) }

func (s *Server) children(c *conn, r *jute.Reader, withStat bool) part {
	var q jute.PathWatch
	q.Decode(r)
	return part{q.Path, func(t znode.State, path string) (func(*jute.Writer), jute.Code) {
		_, st, ok := t.Get(path)
		if !ok {
			return nil, jute.NoNode
		}
		if code := s.watch(c, onChildren, q.Path, q.Watch); code != jute.OK {
			return nil, code
		}
		return func(w *jute.Writer) {
			w.Strings(t.Children(path))
			if withStat {
				stat(st).Encode(w)
			}
		}, jute.OK
	}}
}

// getACL: everybody may do everything, and only read what is past.
func (s *Server) getACL(_ *conn, r *jute.Reader) part {
	var q jute.Path
	q.Decode(r)
	return part{q.Path, func(t znode.State, path string) (func(*jute.Writer), jute.Code) {
		_, st, ok := t.Get(path)
		if !ok {
			return nil, jute.NoNode
		}
		acl := jute.ACL{Perms: 31, Scheme: "world", ID: "anyone"}
		if isPast(q.Path) {
			acl.Perms = 1
		}
		return func(w *jute.Writer) {
			w.Int32(1)
			acl.Encode(w)
			stat(st).Encode(w)
		}, jute.OK
	}}
}

// maxParts bounds a multiRead.
const maxParts = 10_000

// multiRead answers all its reads from one state; a failed one answers for itself.
func (s *Server) multiRead(ctx context.Context, c *conn, xid int32, r *jute.Reader) error {
	type read struct {
		op   jute.Op
		part part
		past *znode.State
		path string
		code jute.Code
	}
	var reads []read
	for {
		var h jute.MultiHeader
		h.Decode(r)
		if r.Err() != nil {
			return r.Err()
		}
		if h.Done {
			break
		}
		if len(reads) == maxParts {
			return fmt.Errorf("a multiRead of more than %d parts", maxParts)
		}
		m := read{op: h.Op}
		switch h.Op {
		case jute.OpGetData:
			m.part = s.getData(c, r)
		case jute.OpGetChildren:
			m.part = s.getChildren(c, r)
		default:
			c.fail(xid, jute.BadArguments)
			return nil
		}
		m.past, m.path, m.code = s.resolve(ctx, m.part.path)
		reads = append(reads, m)
	}
	c.read(xid, func(t znode.State) (func(*jute.Writer), jute.Code) {
		return func(w *jute.Writer) {
			for _, m := range reads {
				at := t
				if m.past != nil {
					at = *m.past
				}
				var body func(*jute.Writer)
				if m.code == jute.OK {
					body, m.code = m.part.run(at, m.path)
				}
				if m.code != jute.OK {
					(&jute.MultiHeader{Op: jute.OpError, Err: m.code}).Encode(w)
					w.Int32(int32(m.code))
					continue
				}
				(&jute.MultiHeader{Op: m.op}).Encode(w)
				body(w)
			}
			jute.MultiEnd().Encode(w)
		}, jute.OK
	})
	return nil
}

// sync returns once everything that the log held when it was asked is in the tree.
func (s *Server) sync(ctx context.Context, c *conn, xid int32, r *jute.Reader) error {
	var q jute.Path
	if q.Decode(r); r.Err() != nil {
		return r.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.SyncTimeout)
	defer cancel()
	last, err := s.log.Last(ctx)
	if err == nil {
		err = s.tree.Wait(ctx, last)
	}
	if err != nil {
		s.logger.Warn("zookeeper sync failed", "err", err)
		c.fail(xid, jute.OperationTimeout)
		return nil
	}
	c.read(xid, func(znode.State) (func(*jute.Writer), jute.Code) { return q.Encode, jute.OK })
	return nil
}

func (s *Server) ping(_ context.Context, c *conn, xid int32, _ *jute.Reader) error {
	c.fail(xid, jute.OK)
	return nil
}

// auth accepts the schemes that need no check while nothing is protected, and ends the
// connection for others, as ZooKeeper does.
func (s *Server) auth(_ context.Context, c *conn, xid int32, r *jute.Reader) error {
	var q jute.AuthPacket
	if q.Decode(r); r.Err() != nil {
		return r.Err()
	}
	if q.Scheme == "digest" || q.Scheme == "ip" {
		c.fail(xid, jute.OK)
		return nil
	}
	c.s.tree.Read(func(t znode.State) { c.send(xid, t.Seq, jute.AuthFailed, nil, true) })
	return errLast
}

func (s *Server) closeSession(_ context.Context, c *conn, xid int32, _ *jute.Reader) error {
	s.sessions.close(c.session.id)
	s.tree.Read(func(t znode.State) { c.send(xid, t.Seq, jute.OK, nil, true) })
	return errLast
}

// setWatches takes a returning client's watches over: what changed since the zxid it
// last saw fires now, the rest stays set. Persistent watches cannot have been set here.
func (s *Server) setWatches(two bool) handler {
	return func(_ context.Context, c *conn, xid int32, r *jute.Reader) error {
		var q jute.SetWatches
		if q.Decode(r, two); r.Err() != nil {
			return r.Err()
		}
		if len(q.Persistent)+len(q.PersistentRecur) > 0 {
			c.fail(xid, jute.Unimplemented)
			return nil
		}
		c.read(xid, func(t znode.State) (func(*jute.Writer), jute.Code) {
			full := jute.OK
			set := func(k kind, path string, fired znode.ChangeKind) {
				switch {
				case fired != 0:
					c.out.notify(notice(znode.Change{Kind: fired, Path: path}))
				case !s.watches.add(c, watchKey{k, path}):
					full = jute.ThrottledOp
				}
			}
			for _, path := range present(q.Data) {
				_, st, ok := t.Get(path)
				set(onData, path, since(ok, st.Mzxid, q.RelativeZxid, znode.DataChanged))
			}
			for _, path := range present(q.Exist) {
				fired := znode.ChangeKind(0)
				if _, _, ok := t.Get(path); ok {
					fired = znode.Created
				}
				set(onData, path, fired)
			}
			for _, path := range present(q.Child) {
				_, st, ok := t.Get(path)
				set(onChildren, path, since(ok, st.Pzxid, q.RelativeZxid, znode.ChildrenChanged))
			}
			return nil, full
		})
		return nil
	}
}

// since says what a watch has missed; 0: nothing.
func since(exists bool, changed, seen int64, k znode.ChangeKind) znode.ChangeKind {
	switch {
	case !exists:
		return znode.Deleted
	case changed > seen:
		return k
	}
	return 0
}

// present leaves out paths of past trees, on which nothing ever fires.
func present(paths []string) []string {
	kept := paths[:0]
	for _, p := range paths {
		if !isPast(p) {
			kept = append(kept, p)
		}
	}
	return kept
}
