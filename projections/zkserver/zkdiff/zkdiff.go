// Package zkdiff makes two servers of ZooKeeper's protocol do the same random operations
// and compares every answer field by field: codes, data, stats, the order of watch
// events among replies, results of multis, what is left of lost sessions. One of them is
// Apache ZooKeeper, so whatever differs is a fault of ours.
//
// Figures that cannot be equal are compared by what they mean: zxids by their rank,
// session ids by which session they are, times not at all. Lists that ZooKeeper gives in
// the order of a hash are compared as sets.
package zkdiff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/jute"
	"github.com/monolith-go/monolith/internal/jute/zkwire"
)

const (
	within     = time.Minute // for each answer
	timeoutMS  = 10_000
	clients    = 3
	persistent = 2     // the client that sets persistent watches, and no others: 3.8 mixes the modes of one path up
	perBase    = 1_500 // operations below one node before the next one is begun
)

// Run sends ops operations, drawn from seed, to the servers at ours and real, which must
// be fresh. Both must agree to sessions of 1 to 10 s.
func Run(t testing.TB, ours, real string, seed uint64, ops int) {
	t.Helper()
	t.Logf("zkdiff: seed %d, %d operations", seed, ops)
	d := &differ{t: t, rng: rand.New(rand.NewPCG(seed, seed)), sides: [2]*side{{name: "ours", addr: ours}, {name: "ZooKeeper", addr: real}}}
	defer d.close()
	for i := range clients {
		d.connect(i, false)
	}
	for d.done < ops {
		d.step()
	}
	d.t.Logf("zkdiff: seed %d: %d operations, %d watch events, %d sessions, no difference", seed, d.done, d.events, len(d.sessions.pairs))
}

// differ drives both sides through one script.
type differ struct {
	t        testing.TB
	rng      *rand.Rand
	sides    [2]*side
	zxids    ranks
	sessions twins
	done     int
	events   int
	bases    int
	inMulti  bool // the parts of a multi are being drawn
	base     string
	made     []string // paths of creates, the newest last
	trail    []string // what was asked last, for the report
}

// side is one server with its connections.
type side struct {
	name, addr string
	conns      [clients]*zkwire.Conn
}

func (d *differ) close() {
	for _, s := range d.sides {
		for _, c := range s.conns {
			if c != nil {
				_ = c.Close() // the test is over
			}
		}
	}
}

// fail ends the run with what led to it.
func (d *differ) fail(format string, args ...any) {
	d.t.Helper()
	pairs := d.zxids.pairs[max(0, len(d.zxids.pairs)-8):]
	d.t.Fatalf("after %d operations: %s\nasked last:\n  %s\nlast zxids, ours and ZooKeeper's: %#x", d.done, fmt.Sprintf(format, args...), strings.Join(d.trail, "\n  "), pairs)
}

func (d *differ) note(format string, args ...any) {
	d.trail = append(d.trail, fmt.Sprintf(format, args...))
	if len(d.trail) > 200 {
		d.trail = slices.Delete(d.trail, 0, len(d.trail)-200)
	}
}

func (d *differ) try(s *side, err error) {
	d.t.Helper()
	if err != nil {
		d.fail("%s: %v", s.name, err)
	}
}

// connect opens client i's session on both sides, or resumes it.
func (d *differ) connect(i int, resume bool) {
	d.t.Helper()
	d.note("client %d connects, resuming %v", i, resume)
	var got [2]jute.ConnectResponse
	for k, s := range d.sides {
		q := jute.ConnectRequest{TimeoutMS: timeoutMS}
		if resume {
			q.SessionID, q.Password = s.conns[i].Session.SessionID, s.conns[i].Session.Password
		}
		c, err := zkwire.Dial(s.addr, q, within)
		d.try(s, err)
		s.conns[i], got[k] = c, c.Session
	}
	if got[0].TimeoutMS != got[1].TimeoutMS || got[0].SessionID == 0 || got[1].SessionID == 0 || len(got[0].Password) != len(got[1].Password) {
		d.fail("connect: %+v\nand %+v", got[0], got[1])
	}
	if !d.sessions.same(got[0].SessionID, got[1].SessionID) {
		d.fail("session %x for %x, which stand for others", got[0].SessionID, got[1].SessionID)
	}
}

// step does one thing on both sides.
func (d *differ) step() {
	if d.done/perBase >= d.bases {
		d.bases++
		d.base = fmt.Sprintf("/t%d", d.bases)
		d.made = nil
		d.batch(0, []ask{d.create(d.base, 0, openACL)})
	}
	i := d.rng.IntN(clients)
	switch n := d.rng.IntN(400); {
	case n < 1:
		d.lose()
	case n < 3:
		d.closeSession(i)
	case n < 6:
		d.reconnect(i)
	case n < 9:
		d.batch(i, []ask{d.addAuth()})
	case n < 12:
		d.batch(i, []ask{d.malformed(), d.bump()}) // ZooKeeper spends a zxid on it, which nobody may see
	default:
		var asks []ask
		for range 1 + d.rng.IntN(6) {
			a := d.anything(i)
			asks = append(asks, a)
			// ZooKeeper decides what is right behind a setACL by the old list, and what is
			// right behind a failed multi by what it has taken back too much of.
			if a.op == jute.OpSetACL || a.op == jute.OpMulti {
				break
			}
		}
		d.batch(i, asks)
	}
}

// ask is one request, and how to read its reply.
type ask struct {
	op     jute.Op
	what   string
	body   func(*jute.Writer)
	read   func(*jute.Reader) []field // of a reply without error
	noZxid bool
	xid    int32 // 0: the next one
}

// batch pipelines requests of one client, and then sees what the others have heard.
func (d *differ) batch(i int, asks []ask) {
	d.t.Helper()
	xids := make([]int32, len(asks))
	for _, s := range d.sides {
		for k, a := range asks {
			if a.xid != 0 {
				xids[k] = a.xid
				s.conns[i].SendAs(a.xid, a.op, a.body)
			} else {
				xids[k] = s.conns[i].Send(a.op, a.body)
			}
		}
		d.try(s, s.conns[i].Flush())
	}
	for _, a := range asks {
		d.note("client %d: %s", i, a.what)
		d.done++
	}
	for k, a := range asks {
		var got [2]frames
		for n, s := range d.sides {
			got[n] = d.until(s, i, xids[k], a)
		}
		d.same(fmt.Sprintf("client %d: %s", i, a.what), got, false)
		d.learn(a, got[0])
	}
	for other := range clients {
		if other != i {
			d.fence(other, false)
		}
	}
}

// fence reads what a client was told up to now.
func (d *differ) fence(i int, anyOrder bool) {
	d.t.Helper()
	var got [2]frames
	for n, s := range d.sides {
		if s.conns[i] == nil {
			return
		}
		s.conns[i].SendAs(jute.XidPing, jute.OpPing, nil)
		d.try(s, s.conns[i].Flush())
		got[n] = d.until(s, i, jute.XidPing, ask{op: jute.OpPing, what: "ping"})
	}
	d.same(fmt.Sprintf("client %d hears", i), got, anyOrder)
}

// frames are the events before a reply, and the reply.
type frames struct {
	events []string
	head   jute.ReplyHeader
	fields []field
}

func (d *differ) until(s *side, i int, xid int32, a ask) (f frames) {
	d.t.Helper()
	d.try(s, s.conns[i].Deadline(within)) // for this and for what is sent next
	for {
		h, r, err := s.conns[i].Next()
		if err != nil {
			d.fail("%s, client %d, waiting for the reply to %s: %v", s.name, i, a.what, err)
		}
		if h.Xid == jute.XidNotification {
			var e jute.WatcherEvent
			e.Decode(r)
			f.events = append(f.events, fmt.Sprintf("zxid %d err %d type %d state %d %q, %d bytes left", h.Zxid, h.Err, e.Type, e.State, e.Path, r.Len()))
			continue
		}
		if h.Xid != xid {
			d.fail("%s, client %d: reply %+v instead of xid %d to %s", s.name, i, h, xid, a.what)
		}
		f.head = h
		if h.Err == jute.OK && a.read != nil {
			f.fields = a.read(r)
		}
		f.fields = append(f.fields, plain("%d bytes left, %v", r.Len(), r.Err()))
		if a.noZxid {
			f.head.Zxid = 0
		}
		return f
	}
}

// same compares the two sides' answers.
func (d *differ) same(what string, got [2]frames, anyOrder bool) {
	d.t.Helper()
	a, b := got[0], got[1]
	d.events += len(a.events)
	if anyOrder {
		slices.Sort(a.events)
		slices.Sort(b.events)
	}
	if !slices.Equal(a.events, b.events) {
		d.fail("%s: watch events differ\nours:      %q before %+v\nZooKeeper: %q before %+v", what, a.events, a.head, b.events, b.head)
	}
	if a.head.Err != b.head.Err || a.head.Xid != b.head.Xid {
		d.fail("%s: ours %+v, ZooKeeper %+v", what, a.head, b.head)
	}
	if !d.zxids.same(a.head.Zxid, b.head.Zxid) {
		d.fail("%s: zxid of the reply: ours %#x, ZooKeeper %#x, which has another rank", what, a.head.Zxid, b.head.Zxid)
	}
	if len(a.fields) != len(b.fields) {
		d.fail("%s: ours %v\nZooKeeper %v", what, a.fields, b.fields)
	}
	for k := range a.fields {
		x, y := a.fields[k], b.fields[k]
		ok := x.text == y.text && x.kind == y.kind
		switch x.kind {
		case zxid:
			ok = ok && d.zxids.same(x.n, y.n)
		case owner:
			ok = ok && d.sessions.same(x.n, y.n)
		}
		if !ok {
			d.fail("%s: field %d is %v, ZooKeeper says %v\nours:      %v\nZooKeeper: %v", what, k, x, y, a.fields, b.fields)
		}
	}
}

// learn remembers what was created, for later operations to find.
func (d *differ) learn(a ask, f frames) {
	switch a.op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
		if f.head.Err == jute.OK && f.fields[0].text != d.base { // which nobody may delete
			d.made = append(d.made, f.fields[0].text)
			if len(d.made) > 60 {
				d.made = slices.Delete(d.made, 0, 20)
			}
		}
	}
}

// reconnect cuts client i's connection, which keeps its session and loses its watches,
// and sets some again.
func (d *differ) reconnect(i int) {
	d.t.Helper()
	for _, s := range d.sides {
		d.try(s, s.conns[i].Close())
	}
	d.connect(i, true)
	at := d.zxids.recent(d.rng)
	q := jute.SetWatches{Data: d.paths(), Exist: d.paths(), Child: d.paths()}
	op := jute.OpSetWatches
	if i == persistent {
		op = jute.OpSetWatches2
		q.Data, q.Exist, q.Child = nil, nil, nil
		for _, p := range append(d.paths(), d.paths()...) {
			if recursive(p) {
				q.PersistentRecur = append(q.PersistentRecur, p)
			} else {
				q.Persistent = append(q.Persistent, p)
			}
		}
	}
	d.note("client %d: setWatches %+v after %v", i, q, at)
	d.done++
	var got [2]frames
	for k, s := range d.sides {
		q := q
		q.RelativeZxid = at[k]
		s.conns[i].SendAs(jute.XidSetWatches, op, func(w *jute.Writer) { q.Encode(w, op == jute.OpSetWatches2) })
		d.try(s, s.conns[i].Flush())
		got[k] = d.until(s, i, jute.XidSetWatches, ask{op: op, what: "setWatches"})
	}
	d.same(fmt.Sprintf("client %d: setWatches", i), got, false)
}

// closeSession ends client i's session and begins another one.
func (d *differ) closeSession(i int) {
	d.t.Helper()
	var got [2]frames
	d.note("client %d closes its session", i)
	d.done++
	for k, s := range d.sides {
		xid := s.conns[i].Send(jute.OpCloseSession, nil)
		d.try(s, s.conns[i].Flush())
		got[k] = d.until(s, i, xid, ask{op: jute.OpCloseSession, what: "closeSession"})
		if _, _, err := s.conns[i].Next(); err == nil {
			d.fail("%s says more after the session has closed", s.name)
		}
	}
	d.same(fmt.Sprintf("client %d: closeSession", i), got, true)
	for _, s := range d.sides {
		_ = s.conns[i].Close() // the server has done so
		s.conns[i] = nil
	}
	for other := range clients {
		d.fence(other, true) // ephemerals go in the order of a hash
	}
	d.connect(i, false)
}

// lose has a session with ephemerals run out.
func (d *differ) lose() {
	d.t.Helper()
	d.note("a session is lost")
	sentinel := d.base + fmt.Sprintf("/lost%d", d.done)
	i := d.rng.IntN(clients)
	var ids [2]int64
	var victims [2]*zkwire.Conn
	for k, s := range d.sides {
		c, err := zkwire.Dial(s.addr, jute.ConnectRequest{TimeoutMS: 1000}, within)
		d.try(s, err)
		ids[k], victims[k] = c.Session.SessionID, c
		if c.Session.TimeoutMS != 1000 {
			d.fail("%s agrees to %d ms", s.name, c.Session.TimeoutMS)
		}
	}
	if !d.sessions.same(ids[0], ids[1]) {
		d.fail("sessions %x", ids)
	}
	for _, p := range []string{sentinel, sentinel + "b", d.path(), d.path()} {
		a := d.create(p, 1, openACL)
		d.note("the session to be lost: %s", a.what)
		var got [2]frames
		for k, s := range d.sides {
			xid := victims[k].Send(a.op, a.body)
			d.try(s, victims[k].Flush())
			h, r, err := victims[k].Next()
			d.try(s, err)
			if h.Xid != xid {
				d.fail("%s: %+v", s.name, h)
			}
			got[k].head = h
			if h.Err == jute.OK {
				got[k].fields = a.read(r)
			}
		}
		d.same("the session to be lost: "+a.what, got, false)
		if p == sentinel && got[0].head.Err != jute.OK {
			d.fail("the node by which the loss is seen was not created: %+v", got[0].head)
		}
		d.done++
	}
	for other := range clients {
		d.fence(other, false)
	}
	for _, v := range victims {
		_ = v.Close() // cut, not closed: nobody hears of it any more
	}
	var got [2][clients]frames
	for k, s := range d.sides {
		for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) { // another process's clock
			s.conns[i].SendAs(pollXid, jute.OpExists, (&jute.PathWatch{Path: sentinel}).Encode)
			h := d.collect(s, i, pollXid, &got[k][i])
			for j := range clients { // who is silent runs out, too
				s.conns[j].SendAs(jute.XidPing, jute.OpPing, nil)
				d.collect(s, j, jute.XidPing, &got[k][j])
			}
			if h.Err == noNode {
				break
			}
			if time.Now().After(deadline) {
				d.fail("%s: the session is not lost after %v", s.name, within)
			}
		}
	}
	for j := range clients {
		d.same(fmt.Sprintf("client %d hears of the lost session", j), [2]frames{got[0][j], got[1][j]}, true)
	}
}

const (
	pollXid int32     = 1 << 30
	noNode  jute.Code = -101
)

// collect sends what is queued, reads up to a reply and keeps the events.
func (d *differ) collect(s *side, i int, xid int32, f *frames) jute.ReplyHeader {
	d.t.Helper()
	d.try(s, s.conns[i].Flush())
	g := d.until(s, i, xid, ask{what: "poll"})
	f.events = append(f.events, g.events...)
	return g.head
}
