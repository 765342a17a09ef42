package server

import (
	"context"
	"strings"
	"time"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// write1 proposes one write. What cannot be read is answered in its turn, as ZooKeeper
// does, and the connection lives on.
func (c *conn) write1(ctx context.Context, h wire.RequestHeader, start time.Time) error {
	if h.Op == wire.OpCloseSession {
		return c.closeSession(ctx, h, start)
	}
	w := &write{request: request{head: h, start: start}}
	p := &w.proposed
	p.Session, p.Multi, p.Auth = c.Session(), h.Op == wire.OpMulti, *c.auth.Load()
	code := wire.OK
	if p.Multi {
		p.Ops, w.shape, code = decodeMulti(&c.in)
	} else {
		decodeWrite(&w.op, h.Op, &c.in, false)
		w.ops[0] = &w.op
		p.Ops = w.ops[:]
	}
	if c.in.Err() != nil {
		code = wire.MarshallingError
	}
	switch {
	case code != wire.OK:
	case c.s.cfg.Proposer == nil:
		code = wire.NotReadOnly
	default:
		for _, op := range p.Ops {
			if isPast(op.Path()) {
				code = wire.NotReadOnly
			}
		}
	}
	if code != wire.OK {
		if err := c.atMost(ctx, 0); err != nil {
			return err
		}
		c.fail(h, code)
		c.answered(h, start, 0)
		return nil
	}
	w.body.Proposed = p
	w.event.Body = &w.body
	return c.propose(ctx, &w.request, &w.event)
}

// write is a request and the event that proposes it, in one piece of memory.
type write struct {
	request
	event    znode.Event
	body     znode.Event_Proposed
	proposed znode.Proposed
	op       znode.Op
	ops      [1]*znode.Op
}

// closeSession ends the connection behind its reply.
func (c *conn) closeSession(ctx context.Context, h wire.RequestHeader, start time.Time) error {
	c.closing.Store(true)
	if c.s.cfg.Proposer == nil {
		c.s.sessions.closeLocal(c.Session())
		c.fail(h, wire.OK)
		c.out.Finish()
		return errLast
	}
	e := &znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: c.Session(), Reason: znode.Closed}}}
	if err := c.propose(ctx, &request{head: h, start: start}, e); err != nil {
		return err
	}
	c.out.Flush()
	return errLast
}

// decodeWrite puts the operation that a request asks for into to. Its bytes are its own:
// they outlive the frame.
func decodeWrite(to *znode.Op, op wire.Op, r *wire.Reader, inMulti bool) {
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		var q wire.CreateRequest
		q.Decode(r, op == wire.OpCreateTTL)
		mode := znode.Mode(q.Flags)
		if !inMulti {
			mode = modeOf(op, mode)
		}
		o := &struct {
			is     znode.Op_Create
			create znode.Create
		}{}
		o.create.Path, o.create.Data, o.create.Acl, o.create.Mode, o.create.TtlMs = utf8(q.Path), owned(q.Data), acls(q.ACL), mode, ttl(op, q)
		o.is.Create = &o.create
		to.Op = &o.is
	case wire.OpDelete:
		var q wire.PathVersion
		q.Decode(r)
		to.Op = &znode.Op_Delete{Delete: &znode.Delete{Path: utf8(q.Path), Version: q.Version}}
	case wire.OpSetData:
		var q wire.SetDataRequest
		q.Decode(r)
		o := &struct {
			is  znode.Op_SetData
			set znode.SetData
		}{}
		o.set.Path, o.set.Data, o.set.Version = utf8(q.Path), owned(q.Data), q.Version
		o.is.SetData = &o.set
		to.Op = &o.is
	case wire.OpSetACL:
		var q wire.SetACLRequest
		q.Decode(r)
		to.Op = &znode.Op_SetAcl{SetAcl: &znode.SetACL{Path: utf8(q.Path), Acl: acls(q.ACL), Version: q.Version}}
	default: // check: kindOf and decodeMulti let nothing else in
		var q wire.PathVersion
		q.Decode(r)
		to.Op = &znode.Op_Check{Check: &znode.Check{Path: utf8(q.Path), Version: q.Version}}
	}
}

// modeOf is what the node becomes. Only createContainer makes containers, whatever the
// flags say, and none of a sequence, for which there is no mode. In a multi the flags
// alone decide.
func modeOf(op wire.Op, m znode.Mode) znode.Mode {
	switch {
	case op == wire.OpCreateContainer && (m == znode.Mode_PERSISTENT || m == znode.Mode_EPHEMERAL):
		return znode.Mode_CONTAINER
	case op == wire.OpCreateContainer && m != znode.Mode_CONTAINER:
		return -1
	case op != wire.OpCreateContainer && m == znode.Mode_CONTAINER:
		return znode.Mode_PERSISTENT
	}
	return m
}

// ttl is the time to live as the fold wants it. A createTTL in a mode that has none must
// not name one either, and 0 is one.
func ttl(op wire.Op, q wire.CreateRequest) int64 {
	mode := znode.Mode(q.Flags)
	if op != wire.OpCreateTTL || mode == znode.Mode_PERSISTENT_WITH_TTL || mode == znode.Mode_PERSISTENT_SEQUENTIAL_WITH_TTL {
		return q.TTL
	}
	if q.TTL < 0 {
		return 0
	}
	return max(q.TTL, 1)
}

func owned(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// openACL is the list with which almost every node is created. Nobody changes it.
var openACL = []*znode.ACL{{Perms: wire.PermAll, Scheme: "world", Id: "anyone"}}

func acls(list []wire.ACL) []*znode.ACL {
	if len(list) == 1 && list[0] == (wire.ACL{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}) {
		return openACL
	}
	out := make([]*znode.ACL, len(list))
	for i, a := range list {
		out[i] = &znode.ACL{Perms: a.Perms, Scheme: utf8(a.Scheme), Id: utf8(a.ID)}
	}
	return out
}

// decodeMulti reads the parts of a multi; their kinds decide the shape of the answer.
func decodeMulti(r *wire.Reader) (ops []*znode.Op, shape []wire.Op, code wire.Code) {
	for {
		var h wire.MultiHeader
		h.Decode(r)
		if r.Err() != nil {
			return nil, nil, wire.MarshallingError
		}
		if h.Done {
			return ops, shape, wire.OK
		}
		switch h.Op {
		case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData, wire.OpCheck:
		default:
			return nil, nil, wire.MarshallingError
		}
		if len(ops) == znode.MaxOps {
			return nil, nil, wire.BadArguments
		}
		op := new(znode.Op)
		decodeWrite(op, h.Op, r, true)
		if r.Err() != nil {
			return nil, nil, wire.MarshallingError
		}
		if op.GetCreate() != nil {
			if h.Op, code = createIn(h.Op, op.GetCreate()); code != wire.OK {
				return nil, nil, code
			}
		}
		ops, shape = append(ops, op), append(shape, h.Op)
	}
}

// createIn is which create ZooKeeper takes one in a multi for: it goes by the mode alone,
// so it answers create2 as create, and cannot read a time to live that is not there. One
// of a mode that has none is dropped.
func createIn(op wire.Op, c *znode.Create) (wire.Op, wire.Code) {
	switch c.GetMode() {
	case znode.Mode_CONTAINER:
		return wire.OpCreateContainer, wire.OK
	case znode.Mode_PERSISTENT_WITH_TTL, znode.Mode_PERSISTENT_SEQUENTIAL_WITH_TTL:
		if op != wire.OpCreateTTL {
			return op, wire.MarshallingError
		}
		return op, wire.OK
	}
	c.TtlMs = 0
	return wire.OpCreate, wire.OK
}

// encodeOutcome writes the reply to a write.
func encodeOutcome(w *wire.Writer, q *request, zxid uint64, o *tree.Outcome) {
	h := wire.ReplyHeader{Xid: q.head.Xid, Zxid: int64(zxid)}
	if q.head.Op == wire.OpMulti {
		h.Encode(w)
		for i, res := range o.Results {
			encodePart(w, q.shape[i], res, o.Code != 0)
		}
		wire.MultiEnd().Encode(w)
		return
	}
	if h.Err = o.Code; h.Err != wire.OK || len(o.Results) == 0 {
		h.Encode(w)
		return
	}
	h.Encode(w)
	encodeResult(w, q.head.Op, o.Results[0])
}

// encodePart writes one result of a multi. If it failed, all results are errors, those
// of the operations before the one that failed with code 0.
func encodePart(w *wire.Writer, op wire.Op, res tree.Result, failed bool) {
	if failed {
		(&wire.MultiHeader{Op: wire.OpError, Err: res.Code}).Encode(w)
		w.Int32(int32(res.Code))
		return
	}
	if op == wire.OpCreateContainer || op == wire.OpCreateTTL {
		(&wire.MultiHeader{Op: wire.OpCreate2}).Encode(w)
	} else {
		(&wire.MultiHeader{Op: op}).Encode(w)
	}
	encodeResult(w, op, res)
}

func encodeResult(w *wire.Writer, op wire.Op, res tree.Result) {
	switch op {
	case wire.OpCreate:
		w.String(res.Path)
	case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		w.String(res.Path)
		encodeStat(w, res.Stat)
	case wire.OpSetData, wire.OpSetACL:
		encodeStat(w, res.Stat)
	}
}

// encodeStat hides the marks of containers and times to live, which clients do not see.
func encodeStat(w *wire.Writer, s wire.Stat) {
	if !tree.IsEphemeral(s.EphemeralOwner) {
		s.EphemeralOwner = 0
	}
	s.Encode(w)
}

// isPast says whether path lies below /@<when>.
func isPast(path string) bool { return strings.HasPrefix(path, "/@") }
