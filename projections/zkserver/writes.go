package zkserver

import (
	"context"
	"strings"
	"time"

	znodepb "github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/jute"
	"github.com/monolith-go/monolith/projections/znode"
)

// write1 proposes one write. What cannot be read is answered in its turn, as ZooKeeper
// does, and the connection lives on.
func (c *conn) write1(ctx context.Context, h jute.RequestHeader, start time.Time) error {
	if h.Op == jute.OpCloseSession {
		return c.closeSession(ctx, h, start)
	}
	w := &write{request: request{head: h, start: start}}
	p := &w.proposed
	p.Session, p.Multi, p.Auth = c.session(), h.Op == jute.OpMulti, *c.auth.Load()
	code := jute.OK
	if p.Multi {
		p.Ops, w.shape, code = decodeMulti(&c.in)
	} else {
		decodeWrite(&w.op, h.Op, &c.in, false)
		w.ops[0] = &w.op
		p.Ops = w.ops[:]
	}
	if c.in.Err() != nil {
		code = jute.MarshallingError
	}
	switch {
	case code != jute.OK:
	case c.s.cfg.Proposer == nil:
		code = jute.NotReadOnly
	default:
		for _, op := range p.Ops {
			if isPast(op.Path()) {
				code = jute.NotReadOnly
			}
		}
	}
	if code != jute.OK {
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
	event    znodepb.Event
	body     znodepb.Event_Proposed
	proposed znodepb.Proposed
	op       znodepb.Op
	ops      [1]*znodepb.Op
}

// closeSession ends the connection behind its reply.
func (c *conn) closeSession(ctx context.Context, h jute.RequestHeader, start time.Time) error {
	c.closing.Store(true)
	if c.s.cfg.Proposer == nil {
		c.s.sessions.closeLocal(c.session())
		c.fail(h, jute.OK)
		c.out.finish()
		return errLast
	}
	e := &znodepb.Event{Body: &znodepb.Event_SessionClosed{SessionClosed: &znodepb.SessionClosed{Session: c.session(), Reason: znodepb.Closed}}}
	if err := c.propose(ctx, &request{head: h, start: start}, e); err != nil {
		return err
	}
	c.out.flush()
	return errLast
}

// decodeWrite puts the operation that a request asks for into to. Its bytes are its own:
// they outlive the frame.
func decodeWrite(to *znodepb.Op, op jute.Op, r *jute.Reader, inMulti bool) {
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
		var q jute.CreateRequest
		q.Decode(r, op == jute.OpCreateTTL)
		mode := znodepb.Mode(q.Flags)
		if !inMulti {
			mode = modeOf(op, mode)
		}
		o := &struct {
			is     znodepb.Op_Create
			create znodepb.Create
		}{}
		o.create.Path, o.create.Data, o.create.Acl, o.create.Mode, o.create.TtlMs = utf8(q.Path), owned(q.Data), acls(q.ACL), mode, ttl(op, q)
		o.is.Create = &o.create
		to.Op = &o.is
	case jute.OpDelete:
		var q jute.PathVersion
		q.Decode(r)
		to.Op = &znodepb.Op_Delete{Delete: &znodepb.Delete{Path: utf8(q.Path), Version: q.Version}}
	case jute.OpSetData:
		var q jute.SetDataRequest
		q.Decode(r)
		o := &struct {
			is  znodepb.Op_SetData
			set znodepb.SetData
		}{}
		o.set.Path, o.set.Data, o.set.Version = utf8(q.Path), owned(q.Data), q.Version
		o.is.SetData = &o.set
		to.Op = &o.is
	case jute.OpSetACL:
		var q jute.SetACLRequest
		q.Decode(r)
		to.Op = &znodepb.Op_SetAcl{SetAcl: &znodepb.SetACL{Path: utf8(q.Path), Acl: acls(q.ACL), Version: q.Version}}
	default: // check: kindOf and decodeMulti let nothing else in
		var q jute.PathVersion
		q.Decode(r)
		to.Op = &znodepb.Op_Check{Check: &znodepb.Check{Path: utf8(q.Path), Version: q.Version}}
	}
}

// modeOf is what the node becomes. Only createContainer makes containers, whatever the
// flags say, and none of a sequence, for which there is no mode. In a multi the flags
// alone decide.
func modeOf(op jute.Op, m znodepb.Mode) znodepb.Mode {
	switch {
	case op == jute.OpCreateContainer && (m == znodepb.Mode_PERSISTENT || m == znodepb.Mode_EPHEMERAL):
		return znodepb.Mode_CONTAINER
	case op == jute.OpCreateContainer && m != znodepb.Mode_CONTAINER:
		return -1
	case op != jute.OpCreateContainer && m == znodepb.Mode_CONTAINER:
		return znodepb.Mode_PERSISTENT
	}
	return m
}

// ttl is the time to live as the fold wants it. A createTTL in a mode that has none must
// not name one either, and 0 is one.
func ttl(op jute.Op, q jute.CreateRequest) int64 {
	mode := znodepb.Mode(q.Flags)
	if op != jute.OpCreateTTL || mode == znodepb.Mode_PERSISTENT_WITH_TTL || mode == znodepb.Mode_PERSISTENT_SEQUENTIAL_WITH_TTL {
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
var openACL = []*znodepb.ACL{{Perms: znode.PermAll, Scheme: "world", Id: "anyone"}}

func acls(list []jute.ACL) []*znodepb.ACL {
	if len(list) == 1 && list[0] == (jute.ACL{Perms: znode.PermAll, Scheme: "world", ID: "anyone"}) {
		return openACL
	}
	out := make([]*znodepb.ACL, len(list))
	for i, a := range list {
		out[i] = &znodepb.ACL{Perms: a.Perms, Scheme: utf8(a.Scheme), Id: utf8(a.ID)}
	}
	return out
}

// decodeMulti reads the parts of a multi; their kinds decide the shape of the answer.
func decodeMulti(r *jute.Reader) (ops []*znodepb.Op, shape []jute.Op, code jute.Code) {
	for {
		var h jute.MultiHeader
		h.Decode(r)
		if r.Err() != nil {
			return nil, nil, jute.MarshallingError
		}
		if h.Done {
			return ops, shape, jute.OK
		}
		switch h.Op {
		case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete, jute.OpSetData, jute.OpCheck:
		default:
			return nil, nil, jute.MarshallingError
		}
		if len(ops) == znodepb.MaxOps {
			return nil, nil, jute.BadArguments
		}
		op := new(znodepb.Op)
		decodeWrite(op, h.Op, r, true)
		if r.Err() != nil {
			return nil, nil, jute.MarshallingError
		}
		if op.GetCreate() != nil {
			if h.Op, code = createIn(h.Op, op.GetCreate()); code != jute.OK {
				return nil, nil, code
			}
		}
		ops, shape = append(ops, op), append(shape, h.Op)
	}
}

// createIn is which create ZooKeeper takes one in a multi for: it goes by the mode alone,
// so it answers create2 as create, and cannot read a time to live that is not there. One
// of a mode that has none is dropped.
func createIn(op jute.Op, c *znodepb.Create) (jute.Op, jute.Code) {
	switch c.GetMode() {
	case znodepb.Mode_CONTAINER:
		return jute.OpCreateContainer, jute.OK
	case znodepb.Mode_PERSISTENT_WITH_TTL, znodepb.Mode_PERSISTENT_SEQUENTIAL_WITH_TTL:
		if op != jute.OpCreateTTL {
			return op, jute.MarshallingError
		}
		return op, jute.OK
	}
	c.TtlMs = 0
	return jute.OpCreate, jute.OK
}

// encodeOutcome writes the reply to a write.
func encodeOutcome(w *jute.Writer, q *request, zxid uint64, o *znode.Outcome) {
	h := jute.ReplyHeader{Xid: q.head.Xid, Zxid: int64(zxid)}
	if q.head.Op == jute.OpMulti {
		h.Encode(w)
		for i, res := range o.Results {
			encodePart(w, q.shape[i], res, o.Code != 0)
		}
		jute.MultiEnd().Encode(w)
		return
	}
	if h.Err = jute.Code(o.Code); h.Err != jute.OK || len(o.Results) == 0 {
		h.Encode(w)
		return
	}
	h.Encode(w)
	encodeResult(w, q.head.Op, o.Results[0])
}

// encodePart writes one result of a multi. If it failed, all results are errors, those
// of the operations before the one that failed with code 0.
func encodePart(w *jute.Writer, op jute.Op, res znode.Result, failed bool) {
	if failed {
		(&jute.MultiHeader{Op: jute.OpError, Err: jute.Code(res.Code)}).Encode(w)
		w.Int32(res.Code)
		return
	}
	if op == jute.OpCreateContainer || op == jute.OpCreateTTL {
		(&jute.MultiHeader{Op: jute.OpCreate2}).Encode(w)
	} else {
		(&jute.MultiHeader{Op: op}).Encode(w)
	}
	encodeResult(w, op, res)
}

func encodeResult(w *jute.Writer, op jute.Op, res znode.Result) {
	switch op {
	case jute.OpCreate:
		w.String(res.Path)
	case jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
		w.String(res.Path)
		encodeStat(w, res.Stat)
	case jute.OpSetData, jute.OpSetACL:
		encodeStat(w, res.Stat)
	}
}

// encodeStat hides the marks of containers and times to live, which clients do not see.
func encodeStat(w *jute.Writer, st znode.Stat) {
	s := jute.Stat(st)
	if !znode.IsEphemeral(s.EphemeralOwner) {
		s.EphemeralOwner = 0
	}
	s.Encode(w)
}

// isPast says whether path lies below /@<when>.
func isPast(path string) bool { return strings.HasPrefix(path, "/@") }
