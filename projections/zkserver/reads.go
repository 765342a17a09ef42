package zkserver

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/jute"
	"github.com/monolith-go/monolith/projections/znode"
)

// opKind is how an operation goes through the server.
type opKind uint8

const (
	isUnknown opKind = iota
	isRead           // answered from the tree alone
	isWrite          // proposed
	isSlow           // waits for something outside; everything before it has been answered
)

func kindOf(op jute.Op) opKind {
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete,
		jute.OpSetData, jute.OpSetACL, jute.OpCheck, jute.OpMulti, jute.OpCloseSession:
		return isWrite
	case jute.OpExists, jute.OpGetData, jute.OpGetChildren, jute.OpGetChildren2, jute.OpGetACL, jute.OpGetAllChildrenNumber,
		jute.OpGetEphemerals, jute.OpMultiRead, jute.OpPing, jute.OpAuth, jute.OpSASL, jute.OpReconfig, jute.OpWhoAmI, jute.OpSetWatches, jute.OpSetWatches2,
		jute.OpAddWatch, jute.OpRemoveWatches, jute.OpCheckWatches:
		return isRead
	case jute.OpSync:
		return isSlow
	}
	return isUnknown
}

// place is where a read looks: the live tree, whose zxid its reply has, or past ones,
// which were found before the tree was locked.
type place struct {
	live znode.State
	past map[string]pastAnswer // by what stands behind "/@"; nil: none was looked for
}

type pastAnswer struct {
	t    *znode.State
	code jute.Code
}

// spot is a path in one of the trees.
type spot struct {
	t    znode.State
	path string
	past bool
}

// at is where path is to be read. Like ZooKeeper it takes "" for the root.
func (p place) at(path string) (spot, jute.Code) {
	switch {
	case path == "":
		return spot{t: p.live, path: "/"}, jute.OK
	case !isPast(path):
		return spot{t: p.live, path: path}, jute.OK
	}
	when, rest := cutPast(path)
	a, ok := p.past[when]
	if !ok {
		a.code = jute.NoNode
		if p.past != nil {
			a.code = jute.ThrottledOp // more of them than one request may ask for
		}
	}
	if a.code != jute.OK {
		return spot{}, a.code
	}
	return spot{t: *a.t, path: rest, past: true}, jute.OK
}

// readNow answers a read with nothing before it. It returns the tree's zxid.
func (c *conn) readNow(h jute.RequestHeader) (zxid int64) {
	c.s.tree.Read(func(t znode.State) {
		zxid = int64(t.Seq)
		c.s.read(c, place{live: t}, h, &c.in)
	})
	return zxid
}

// read answers one read under a lock of the tree: the reply is queued there, and so in
// the order of zxids with watch events.
func (s *Server) read(c *conn, in place, h jute.RequestHeader, r *jute.Reader) {
	switch h.Op {
	case jute.OpGetData:
		s.getData(c, in, h, r)
	case jute.OpExists:
		s.exists(c, in, h, r)
	case jute.OpGetChildren, jute.OpGetChildren2:
		s.getChildren(c, in, h, r)
	case jute.OpGetACL:
		s.getACL(c, in, h, r)
	case jute.OpGetAllChildrenNumber:
		s.countAll(c, in, h, r)
	case jute.OpGetEphemerals:
		s.getEphemerals(c, in, h, r)
	case jute.OpMultiRead:
		s.multiRead(c, in, h, r)
	case jute.OpAddWatch:
		s.addWatch(c, in, h, r)
	case jute.OpRemoveWatches, jute.OpCheckWatches:
		s.someWatches(c, in, h, r)
	case jute.OpSetWatches, jute.OpSetWatches2:
		s.setWatches(c, in, h, r)
	case jute.OpWhoAmI:
		s.whoAmI(c, in, h)
	case jute.OpAuth:
		s.addAuth(c, h, r)
	case jute.OpSASL: // as ZooKeeper refuses a token; without one and without an error kazoo would ask for ever
		c.head(h, place{}, jute.AuthFailed).Buffer(nil)
		c.out.end()
		c.out.finish()
	case jute.OpReconfig: // as a ZooKeeper that is alone: which registries there are is no matter of the tree
		c.refuse(h, in, jute.Unimplemented)
	default: // ping
		c.refuse(h, in, jute.OK)
	}
}

// head begins a reply, which the caller ends.
func (c *conn) head(h jute.RequestHeader, in place, code jute.Code) *jute.Writer {
	w := c.out.begin()
	w.Int32(h.Xid)
	w.Int64(int64(in.live.Seq))
	w.Int32(int32(code))
	return w
}

// refuse is a reply that is a code and nothing else.
func (c *conn) refuse(h jute.RequestHeader, in place, code jute.Code) {
	c.head(h, in, code)
	c.out.end()
}

// fail is refuse outside the tree's lock.
func (c *conn) fail(h jute.RequestHeader, code jute.Code) {
	c.s.tree.Read(func(t znode.State) { c.refuse(h, place{live: t}, code) })
}

// look finds the node that path names, for a client that may do there what perm names.
func (c *conn) look(in place, path string, perm int32) (at spot, acl []znode.ACL, st znode.Stat, code jute.Code) {
	if at, code = in.at(path); code != jute.OK {
		return at, nil, st, code
	}
	acl, st, ok := at.t.ACL(at.path)
	switch {
	case !ok:
		code = jute.NoNode
	case !c.may(acl, perm):
		code = jute.NoAuth
	}
	return at, acl, st, code
}

// watch sets a one-shot watch if one is wanted; the past does not change.
func (c *conn) watch(k kind, at spot, q jute.PathWatch) jute.Code {
	if !q.Watch || at.past {
		return jute.OK
	}
	return c.s.watches.add(c, watchKey{k, q.Path}, standard)
}

// exists asks for no permission, as ZooKeeper does not, and sets its watch on what is
// not there as well.
func (s *Server) exists(c *conn, in place, h jute.RequestHeader, r *jute.Reader) {
	var q jute.PathWatch
	if q.Decode(r); r.Err() != nil {
		c.refuse(h, in, jute.MarshallingError)
		return
	}
	if strings.IndexByte(q.Path, 0) >= 0 {
		c.refuse(h, in, jute.BadArguments)
		return
	}
	at, code := in.at(q.Path)
	if code == jute.OK {
		code = c.watch(onData, at, q)
	}
	if code != jute.OK {
		c.refuse(h, in, code)
		return
	}
	st, ok := at.t.Stat(at.path)
	if !ok {
		c.refuse(h, in, jute.NoNode)
		return
	}
	w := c.head(h, in, jute.OK)
	encodeStat(w, st)
	c.out.end()
}

func (s *Server) getData(c *conn, in place, h jute.RequestHeader, r *jute.Reader) {
	var q jute.PathWatch
	if q.Decode(r); r.Err() != nil {
		c.refuse(h, in, jute.MarshallingError)
		return
	}
	at, _, st, code := c.look(in, q.Path, znode.PermRead)
	if code == jute.OK {
		code = c.watch(onData, at, q)
	}
	if code != jute.OK {
		c.refuse(h, in, code)
		return
	}
	data, _, _ := at.t.Get(at.path)
	w := c.head(h, in, jute.OK)
	w.Buffer(data)
	encodeStat(w, st)
	c.out.end()
}

// getChildren answers both of its kinds.
func (s *Server) getChildren(c *conn, in place, h jute.RequestHeader, r *jute.Reader) {
	var q jute.PathWatch
	if q.Decode(r); r.Err() != nil {
		c.refuse(h, in, jute.MarshallingError)
		return
	}
	at, _, st, code := c.look(in, q.Path, znode.PermRead)
	if code == jute.OK {
		code = c.watch(onChildren, at, q)
	}
	if code != jute.OK {
		c.refuse(h, in, code)
		return
	}
	names := at.t.Children(at.path)
	w := c.head(h, in, jute.OK)
	w.Strings(names)
	if h.Op == jute.OpGetChildren2 {
		encodeStat(w, st)
	}
	c.out.end()
}

func (s *Server) getACL(c *conn, in place, h jute.RequestHeader, r *jute.Reader) {
	path := r.Text()
	if r.Err() != nil {
		c.refuse(h, in, jute.MarshallingError)
		return
	}
	at, acl, st, code := c.look(in, path, znode.PermRead|znode.PermAdmin)
	switch {
	case code != jute.OK:
		c.refuse(h, in, code)
		return
	case at.past:
		acl = []znode.ACL{{Perms: znode.PermRead, Scheme: "world", ID: "anyone"}} // nobody changes the past
	case !c.may(acl, znode.PermAdmin):
		acl = masked(acl)
	}
	w := c.head(h, in, jute.OK)
	w.Int32(int32(len(acl)))
	for _, a := range acl {
		e := jute.ACL(a)
		e.Encode(w)
	}
	encodeStat(w, st)
	c.out.end()
}

// countAll is how many nodes lie below one.
func (s *Server) countAll(c *conn, in place, h jute.RequestHeader, r *jute.Reader) {
	path := r.Text()
	if r.Err() != nil {
		c.refuse(h, in, jute.MarshallingError)
		return
	}
	at, _, _, code := c.look(in, path, znode.PermRead)
	if code != jute.OK {
		c.refuse(h, in, code)
		return
	}
	n := at.t.Descendants(at.path)
	if path == "" {
		n++ // ZooKeeper counts the root below what has no name
	}
	w := c.head(h, in, jute.OK)
	w.Int32(int32(n))
	c.out.end()
}

func (s *Server) getEphemerals(c *conn, in place, h jute.RequestHeader, r *jute.Reader) {
	prefix := r.String()
	if r.Err() != nil {
		c.refuse(h, in, jute.MarshallingError)
		return
	}
	paths := in.live.Ephemerals(c.session())
	if p := strings.TrimSpace(prefix); p != "" && p != "/" {
		paths = slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return !strings.HasPrefix(p, prefix) })
	}
	w := c.head(h, in, jute.OK)
	w.Strings(paths)
	c.out.end()
}

// multiRead answers all its reads from one state; a failed one answers for itself. As in
// ZooKeeper it sets no watches, whatever its parts say. What they ask for together has a
// bound, because a few bytes of a request ask for a whole node each.
func (s *Server) multiRead(c *conn, in place, h jute.RequestHeader, r *jute.Reader) {
	w := c.head(h, in, jute.OK)
	start := len(w.B)
	cut := func(code jute.Code) { // nothing but the code
		w.B = w.B[:start]
		binary.BigEndian.PutUint32(w.B[start-4:], uint32(code))
		c.out.end()
	}
	for {
		var m jute.MultiHeader
		if m.Decode(r); m.Done && r.Err() == nil {
			break
		}
		var q jute.PathWatch
		switch m.Op {
		case jute.OpGetData, jute.OpGetChildren:
			q.Decode(r)
		default:
			r.Reset(nil)
			r.Int32()
		}
		if r.Err() != nil {
			cut(jute.MarshallingError)
			return
		}
		at, _, _, code := c.look(in, q.Path, znode.PermRead)
		switch {
		case code != jute.OK:
			(&jute.MultiHeader{Op: jute.OpError, Err: code}).Encode(w)
			w.Int32(int32(code))
		case m.Op == jute.OpGetChildren:
			(&jute.MultiHeader{Op: m.Op}).Encode(w)
			w.Strings(at.t.Children(at.path))
		default:
			(&jute.MultiHeader{Op: m.Op}).Encode(w)
			data, st, _ := at.t.Get(at.path)
			w.Buffer(data)
			encodeStat(w, st)
		}
		if len(w.B)-start > s.cfg.MaxQueuedBytes {
			cut(jute.ThrottledOp)
			return
		}
	}
	jute.MultiEnd().Encode(w)
	c.out.end()
}

// whoAmI lists the client's identities, of digests the user alone.
func (s *Server) whoAmI(c *conn, in place, h jute.RequestHeader) {
	ids := *c.auth.Load()
	w := c.head(h, in, jute.OK)
	w.Int32(int32(len(ids)))
	for _, id := range ids {
		user := id.Id
		if id.Scheme == "digest" {
			user, _, _ = strings.Cut(user, ":")
		}
		w.String(id.Scheme)
		w.String(user)
	}
	c.out.end()
}

// addAuth takes an identity on, or ends the connection of a client that shows none, as
// ZooKeeper does. Its replies have no zxid.
func (s *Server) addAuth(c *conn, h jute.RequestHeader, r *jute.Reader) {
	var q jute.AuthPacket
	q.Decode(r)
	code := jute.AuthFailed
	if r.Err() == nil {
		for _, id := range c.identities(q) {
			c.show(id)
			code = jute.OK
		}
	}
	rep := jute.ReplyHeader{Xid: h.Xid, Err: code}
	rep.Encode(c.out.begin())
	c.out.end()
	if code != jute.OK {
		c.out.finish()
	}
}

// slow answers what waits for something outside the tree. Nothing is before it.
func (s *Server) slow(ctx context.Context, c *conn, h jute.RequestHeader) error {
	if h.Op == jute.OpSync {
		path := c.in.Text()
		if c.in.Err() != nil {
			c.fail(h, jute.MarshallingError)
			return nil
		}
		if err := c.pauseReading(ctx, s.catchUp); err != nil {
			s.logger.Warn("zookeeper sync failed", "err", err)
			c.fail(h, jute.OperationTimeout)
			return nil
		}
		s.tree.Read(func(t znode.State) {
			w := c.head(h, place{live: t}, jute.OK)
			w.String(path)
			c.out.end()
		})
		return nil
	}
	return s.slowPast(ctx, c, h)
}

// catchUp returns once everything that the log held when it was asked is in the tree.
func (s *Server) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.SyncTimeout)
	defer cancel()
	last, err := s.log.Last(ctx)
	if err != nil {
		return err
	}
	return s.tree.Wait(ctx, last)
}
