package server

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/watch"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// opKind is how an operation goes through the server.
type opKind uint8

const (
	isUnknown opKind = iota
	isRead           // answered from the tree alone
	isWrite          // proposed
	isSlow           // waits for something outside; everything before it has been answered
)

func kindOf(op wire.Op) opKind {
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete,
		wire.OpSetData, wire.OpSetACL, wire.OpCheck, wire.OpMulti, wire.OpCloseSession:
		return isWrite
	case wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetACL, wire.OpGetAllChildrenNumber,
		wire.OpGetEphemerals, wire.OpMultiRead, wire.OpPing, wire.OpAuth, wire.OpSASL, wire.OpReconfig, wire.OpWhoAmI, wire.OpSetWatches, wire.OpSetWatches2,
		wire.OpAddWatch, wire.OpRemoveWatches, wire.OpCheckWatches:
		return isRead
	case wire.OpSync:
		return isSlow
	}
	return isUnknown
}

// place is where a read looks: the live tree, whose zxid its reply has, or past ones,
// which were found before the tree was locked.
type place struct {
	live view.State
	past map[string]pastAnswer // by what stands behind "/@"; nil: none was looked for
}

type pastAnswer struct {
	t    *view.State
	code wire.Code
}

// spot is a path in one of the trees.
type spot struct {
	t    view.State
	path string
	past bool
}

// at is where path is to be read. Like ZooKeeper it takes "" for the root.
func (p place) at(path string) (spot, wire.Code) {
	switch {
	case path == "":
		return spot{t: p.live, path: "/"}, wire.OK
	case !isPast(path):
		return spot{t: p.live, path: path}, wire.OK
	}
	when, rest := cutPast(path)
	a, ok := p.past[when]
	if !ok {
		a.code = wire.NoNode
		if p.past != nil {
			a.code = wire.ThrottledOp // more of them than one request may ask for
		}
	}
	if a.code != wire.OK {
		return spot{}, a.code
	}
	return spot{t: *a.t, path: rest, past: true}, wire.OK
}

// readNow answers a read with nothing before it. It returns the tree's zxid.
func (c *conn) readNow(h wire.RequestHeader) (zxid int64) {
	c.s.tree.Read(func(t view.State) {
		zxid = int64(t.Seq)
		c.s.read(c, place{live: t}, h, &c.in)
	})
	return zxid
}

// read answers one read under a lock of the tree: the reply is queued there, and so in
// the order of zxids with watch events.
func (s *Server) read(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	switch h.Op {
	case wire.OpGetData:
		s.getData(c, in, h, r)
	case wire.OpExists:
		s.exists(c, in, h, r)
	case wire.OpGetChildren, wire.OpGetChildren2:
		s.getChildren(c, in, h, r)
	case wire.OpGetACL:
		s.getACL(c, in, h, r)
	case wire.OpGetAllChildrenNumber:
		s.countAll(c, in, h, r)
	case wire.OpGetEphemerals:
		s.getEphemerals(c, in, h, r)
	case wire.OpMultiRead:
		s.multiRead(c, in, h, r)
	case wire.OpAddWatch:
		s.addWatch(c, in, h, r)
	case wire.OpRemoveWatches, wire.OpCheckWatches:
		s.someWatches(c, in, h, r)
	case wire.OpSetWatches, wire.OpSetWatches2:
		s.setWatches(c, in, h, r)
	case wire.OpWhoAmI:
		s.whoAmI(c, in, h)
	case wire.OpAuth:
		s.addAuth(c, h, r)
	case wire.OpSASL: // as ZooKeeper refuses a token; without one and without an error kazoo would ask for ever
		c.head(h, place{}, wire.AuthFailed).Buffer(nil)
		c.out.End()
		c.out.Finish()
	case wire.OpReconfig: // as a ZooKeeper that is alone: which registries there are is no matter of the tree
		c.refuse(h, in, wire.Unimplemented)
	default: // ping
		c.refuse(h, in, wire.OK)
	}
}

// head begins a reply, which the caller ends.
func (c *conn) head(h wire.RequestHeader, in place, code wire.Code) *wire.Writer {
	w := c.out.Begin()
	w.Int32(h.Xid)
	w.Int64(int64(in.live.Seq))
	w.Int32(int32(code))
	return w
}

// refuse is a reply that is a code and nothing else.
func (c *conn) refuse(h wire.RequestHeader, in place, code wire.Code) {
	c.head(h, in, code)
	c.out.End()
}

// fail is refuse outside the tree's lock.
func (c *conn) fail(h wire.RequestHeader, code wire.Code) {
	c.s.tree.Read(func(t view.State) { c.refuse(h, place{live: t}, code) })
}

// look finds the node that path names, for a client that may do there what perm names.
func (c *conn) look(in place, path string, perm int32) (at spot, acl []wire.ACL, st wire.Stat, code wire.Code) {
	if at, code = in.at(path); code != wire.OK {
		return at, nil, st, code
	}
	acl, st, ok := at.t.ACL(at.path)
	switch {
	case !ok:
		code = wire.NoNode
	case !c.May(acl, perm):
		code = wire.NoAuth
	}
	return at, acl, st, code
}

// watch sets a one-shot watch if one is wanted; the past does not change.
func (c *conn) watch(k watch.Kind, at spot, q wire.PathWatch) wire.Code {
	if !q.Watch || at.past {
		return wire.OK
	}
	return c.s.watches.Add(c.watcher, watch.Key{Kind: k, Path: q.Path}, watch.Standard)
}

// exists asks for no permission, as ZooKeeper does not, and sets its watch on what is
// not there as well.
func (s *Server) exists(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	var q wire.PathWatch
	if q.Decode(r); r.Err() != nil {
		c.refuse(h, in, wire.MarshallingError)
		return
	}
	if strings.IndexByte(q.Path, 0) >= 0 {
		c.refuse(h, in, wire.BadArguments)
		return
	}
	at, code := in.at(q.Path)
	if code == wire.OK {
		code = c.watch(watch.Data, at, q)
	}
	if code != wire.OK {
		c.refuse(h, in, code)
		return
	}
	st, ok := at.t.Stat(at.path)
	if !ok {
		c.refuse(h, in, wire.NoNode)
		return
	}
	w := c.head(h, in, wire.OK)
	encodeStat(w, st)
	c.out.End()
}

// lookToWatch finds the node that a request names, whose client may read it, and sets the watch
// that it asks for; else it answers, and is not ok.
func (c *conn) lookToWatch(k watch.Kind, in place, h wire.RequestHeader, r *wire.Reader) (at spot, st wire.Stat, ok bool) {
	var q wire.PathWatch
	if q.Decode(r); r.Err() != nil {
		c.refuse(h, in, wire.MarshallingError)
		return at, st, false
	}
	at, _, st, code := c.look(in, q.Path, wire.PermRead)
	if code == wire.OK {
		code = c.watch(k, at, q)
	}
	if code != wire.OK {
		c.refuse(h, in, code)
	}
	return at, st, code == wire.OK
}

func (s *Server) getData(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	at, st, ok := c.lookToWatch(watch.Data, in, h, r)
	if !ok {
		return
	}
	data, _, _ := at.t.Get(at.path)
	w := c.head(h, in, wire.OK)
	w.Buffer(data)
	encodeStat(w, st)
	c.out.End()
}

// getChildren answers both of its kinds.
func (s *Server) getChildren(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	at, st, ok := c.lookToWatch(watch.Children, in, h, r)
	if !ok {
		return
	}
	names := at.t.Children(at.path)
	w := c.head(h, in, wire.OK)
	w.Strings(names)
	if h.Op == wire.OpGetChildren2 {
		encodeStat(w, st)
	}
	c.out.End()
}

func (s *Server) getACL(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	path := r.Text()
	if r.Err() != nil {
		c.refuse(h, in, wire.MarshallingError)
		return
	}
	at, acl, st, code := c.look(in, path, wire.PermRead|wire.PermAdmin)
	switch {
	case code != wire.OK:
		c.refuse(h, in, code)
		return
	case at.past:
		acl = []wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}} // nobody changes the past
	case !c.May(acl, wire.PermAdmin):
		acl = masked(acl)
	}
	w := c.head(h, in, wire.OK)
	wire.EncodeACLs(w, acl)
	encodeStat(w, st)
	c.out.End()
}

// countAll is how many nodes lie below one.
func (s *Server) countAll(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	path := r.Text()
	if r.Err() != nil {
		c.refuse(h, in, wire.MarshallingError)
		return
	}
	at, _, _, code := c.look(in, path, wire.PermRead)
	if code != wire.OK {
		c.refuse(h, in, code)
		return
	}
	n := at.t.Descendants(at.path)
	if path == "" {
		n++ // ZooKeeper counts the root below what has no name
	}
	w := c.head(h, in, wire.OK)
	w.Int32(int32(n))
	c.out.End()
}

func (s *Server) getEphemerals(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	prefix := r.String()
	if r.Err() != nil {
		c.refuse(h, in, wire.MarshallingError)
		return
	}
	paths := in.live.Ephemerals(c.Session())
	if p := strings.TrimSpace(prefix); p != "" && p != "/" {
		paths = slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return !strings.HasPrefix(p, prefix) })
	}
	w := c.head(h, in, wire.OK)
	w.Strings(paths)
	c.out.End()
}

// multiRead answers all its reads from one state; a failed one answers for itself. As in
// ZooKeeper it sets no watches, whatever its parts say. What they ask for together has a
// bound, because a few bytes of a request ask for a whole node each.
func (s *Server) multiRead(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	w := c.head(h, in, wire.OK)
	start := len(w.B)
	cut := func(code wire.Code) { // nothing but the code
		w.B = w.B[:start]
		binary.BigEndian.PutUint32(w.B[start-4:], uint32(code))
		c.out.End()
	}
	for {
		var m wire.MultiHeader
		if m.Decode(r); m.Done && r.Err() == nil {
			break
		}
		var q wire.PathWatch
		switch m.Op {
		case wire.OpGetData, wire.OpGetChildren:
			q.Decode(r)
		default:
			r.Reset(nil)
			r.Int32()
		}
		if r.Err() != nil {
			cut(wire.MarshallingError)
			return
		}
		at, _, _, code := c.look(in, q.Path, wire.PermRead)
		switch {
		case code != wire.OK:
			(&wire.MultiHeader{Op: wire.OpError, Err: code}).Encode(w)
			w.Int32(int32(code))
		case m.Op == wire.OpGetChildren:
			(&wire.MultiHeader{Op: m.Op}).Encode(w)
			w.Strings(at.t.Children(at.path))
		default:
			(&wire.MultiHeader{Op: m.Op}).Encode(w)
			data, st, _ := at.t.Get(at.path)
			w.Buffer(data)
			encodeStat(w, st)
		}
		if len(w.B)-start > s.cfg.MaxQueuedBytes {
			cut(wire.ThrottledOp)
			return
		}
	}
	wire.MultiEnd().Encode(w)
	c.out.End()
}

// whoAmI lists the client's identities, of digests the user alone.
func (s *Server) whoAmI(c *conn, in place, h wire.RequestHeader) {
	ids := *c.auth.Load()
	w := c.head(h, in, wire.OK)
	w.Int32(int32(len(ids)))
	for _, id := range ids {
		user := id.Id
		if id.Scheme == "digest" {
			user, _, _ = strings.Cut(user, ":")
		}
		w.String(id.Scheme)
		w.String(user)
	}
	c.out.End()
}

// addAuth takes an identity on, or ends the connection of a client that shows none, as
// ZooKeeper does. Its replies have no zxid.
func (s *Server) addAuth(c *conn, h wire.RequestHeader, r *wire.Reader) {
	var q wire.AuthPacket
	q.Decode(r)
	code := wire.AuthFailed
	if r.Err() == nil {
		for _, id := range c.identities(q) {
			c.show(id)
			code = wire.OK
		}
	}
	rep := wire.ReplyHeader{Xid: h.Xid, Err: code}
	rep.Encode(c.out.Begin())
	c.out.End()
	if code != wire.OK {
		c.out.Finish()
	}
}

// slow answers what waits for something outside the tree. Nothing is before it.
func (s *Server) slow(ctx context.Context, c *conn, h wire.RequestHeader) error {
	if h.Op == wire.OpSync {
		path := c.in.Text()
		if c.in.Err() != nil {
			c.fail(h, wire.MarshallingError)
			return nil
		}
		if err := c.pauseReading(ctx, s.catchUp); err != nil {
			s.logger.Warn("zookeeper sync failed", "err", err)
			c.fail(h, wire.OperationTimeout)
			return nil
		}
		s.tree.Read(func(t view.State) {
			w := c.head(h, place{live: t}, wire.OK)
			w.String(path)
			c.out.End()
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
