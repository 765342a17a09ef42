// Package zktest makes two servers of ZooKeeper's protocol do the same random operations
// and compares every answer field by field: codes, data, stats, the order of watch
// events among replies, results of multis, what is left of lost sessions. One of them is
// Apache ZooKeeper, so whatever differs is a fault of ours. Some requests come a few at a
// time, some dozens at a time, of one session or of all at once in lanes of their own.
//
// Figures that cannot be equal are compared by what they mean: zxids by their rank (see
// zxids), session ids by which session they are, times not at all. Lists that ZooKeeper
// gives in the order of a hash are compared as sets.
package zktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

const (
	within     = time.Minute // for each answer
	timeoutMS  = 10_000
	lostMS     = 3_000 // of sessions that are lost: long enough for their creates on a machine that stands still for a moment
	clients    = 3
	persistent = 2     // the client that sets persistent watches, and no others: 3.8 mixes the modes of one path up
	perBase    = 1_500 // operations below one node before the next one is begun
	progress   = 10 * time.Second
)

// Config is a run's: both servers must be fresh and agree to sessions of 1 to 10 s.
type Config struct {
	Ours, Real string // addresses
	Seed       uint64
	Ops        int  // operations to do at least
	Packs      bool // ours may give writes that come at once one zxid
}

// Summary is what a run without any difference has seen.
type Summary struct {
	Ops, Events, Sessions int
	Bursts                int // batches of dozens of requests
	Shared                int // writes whose zxid another write has, too
}

// Run does what cfg says, and fails t at the first difference. Every ten seconds it logs
// how far it is.
func Run(t testing.TB, cfg Config) Summary {
	t.Helper()
	t.Logf("zkdiff: seed %d, %d operations", cfg.Seed, cfg.Ops)
	d := &differ{
		t: t, rng: rand.New(rand.NewPCG(cfg.Seed, cfg.Seed)), zxids: zxids{packs: cfg.Packs},
		sides: [2]*side{{name: "ours", addr: cfg.Ours}, {name: "ZooKeeper", addr: cfg.Real}},
	}
	defer d.close()
	for i := range clients {
		d.connect(i, false)
	}
	began, told := time.Now(), time.Now()
	for d.done < cfg.Ops {
		d.step()
		if time.Since(told) > progress {
			told = time.Now()
			d.t.Logf("zkdiff: seed %d: %d of %d operations (%d a second), %d bursts, %d shared zxids, no difference up to here",
				cfg.Seed, d.done, cfg.Ops, int(float64(d.done)/time.Since(began).Seconds()), d.bursts, d.zxids.shared)
		}
	}
	sum := Summary{Ops: d.done, Events: d.events, Sessions: len(d.sessions.pairs), Bursts: d.bursts, Shared: d.zxids.shared}
	d.t.Logf("zkdiff: seed %d: %+v in %v, no difference", cfg.Seed, sum, time.Since(began).Round(time.Second))
	return sum
}

// differ drives both sides through one script.
type differ struct {
	t        testing.TB
	rng      *rand.Rand
	sides    [2]*side
	zxids    zxids
	heads    [clients]pair   // the last zxid of each client's replies
	states   map[string]pair // by path: the last mzxid seen
	sessions twins
	done     int
	events   int
	bursts   int
	bases    int
	inMulti  bool // the parts of a multi are being drawn
	base     string
	root     string   // of the paths that are drawn: base, or that of a lane
	laned    bool     // the lanes' roots are there
	made     []string // paths of creates, the newest last
	trail    []string // what was asked last, for the report
}

// side is one server with its connections.
type side struct {
	name, addr string
	conns      [clients]*client.Conn
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
	d.t.Fatalf("after %d operations: %s\nasked last:\n  %s\nlast zxids, ours and ZooKeeper's, and lanes: %#x", d.done, fmt.Sprintf(format, args...), strings.Join(d.trail, "\n  "), pairs)
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
	var got [2]wire.ConnectResponse
	for k, s := range d.sides {
		q := wire.ConnectRequest{TimeoutMS: timeoutMS}
		if resume {
			q.SessionID, q.Password = s.conns[i].Session.SessionID, s.conns[i].Session.Password
		}
		c, err := client.Dial(s.addr, q, within)
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
		d.bases = d.done/perBase + 1
		d.base = fmt.Sprintf("/t%d", d.bases)
		d.root, d.laned, d.made, d.states = d.base, false, nil, map[string]pair{}
		d.batch(0, []ask{d.create(d.base, 0, openACL)})
	}
	i := d.rng.IntN(clients)
	switch n := d.rng.IntN(400); {
	case n < 1:
		d.lose()
	case n < 3:
		d.closeSession(i, nil)
	case n < 5:
		d.closeSession(i, d.dozens(i))
	case n < 8:
		d.reconnect(i)
	case n < 11:
		d.batch(i, []ask{d.addAuth()})
	case n < 14:
		d.batch(i, []ask{d.malformed(), d.bump()}) // ZooKeeper spends a zxid on it, which nobody may see
	case n < 70:
		d.batch(i, d.dozens(i))
	case n < 130:
		d.lanes()
	default:
		var asks []ask
		for range 1 + d.rng.IntN(6) {
			a := d.anything(i)
			asks = append(asks, a)
			if blurs(a) {
				break
			}
		}
		d.batch(i, asks)
	}
}

// blurs says that nothing should be right behind a. ZooKeeper decides what is behind a
// setACL by the old list, and what is behind a failed multi by what it has taken back too
// much of.
func blurs(a ask) bool { return a.op == wire.OpSetACL || a.op == wire.OpMulti }

// ask is one request, and how to read its reply.
type ask struct {
	op     wire.Op
	path   string // whose stat is in the reply; "": of none, or of several
	what   string
	body   func(*wire.Writer)
	read   func(*wire.Reader) []field // of a reply without error
	noZxid bool
	xid    int32 // 0: the next one
}

// batch pipelines requests of one client, and then sees what the others have heard.
func (d *differ) batch(i int, asks []ask) {
	d.t.Helper()
	xids := d.send(i, asks)
	for k, a := range asks {
		var got [2]frames
		for n, s := range d.sides {
			got[n] = d.until(s, i, xids[k], a)
		}
		d.same(i, a, got, false)
		d.learn(a, got[0])
	}
	for other := range clients {
		if other != i {
			d.fence(other, false)
		}
	}
}

// send sends requests of one client to both sides, and returns their xids.
func (d *differ) send(i int, asks []ask) []int32 {
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
	return xids
}

// fence reads what a client was told up to now, when nobody has anything on its way.
func (d *differ) fence(i int, anyOrder bool) {
	d.t.Helper()
	if d.sides[0].conns[i] == nil {
		return
	}
	got := d.ping(i)
	d.same(i, ping, got, anyOrder)
	d.ends(got)
}

var ping = ask{op: wire.OpPing, what: "ping"}

func (d *differ) ping(i int) (got [2]frames) {
	d.t.Helper()
	for n, s := range d.sides {
		s.conns[i].SendAs(wire.XidPing, wire.OpPing, nil)
		d.try(s, s.conns[i].Flush())
		got[n] = d.until(s, i, wire.XidPing, ping)
	}
	return got
}

// ends ends a batch with what a ping was answered.
func (d *differ) ends(got [2]frames) {
	d.t.Helper()
	if a, b := got[0].head.Zxid, got[1].head.Zxid; !d.zxids.ends(a, b) {
		d.fail("a batch ends with zxid %#x, ZooKeeper says %#x, which has another rank", a, b)
	}
}

// frames are the events before a reply, and the reply.
type frames struct {
	events []string
	head   wire.ReplyHeader
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
		if h.Xid == wire.XidNotification {
			var e wire.WatcherEvent
			e.Decode(r)
			f.events = append(f.events, fmt.Sprintf("zxid %d err %d type %d state %d %q, %d bytes left", h.Zxid, h.Err, e.Type, e.State, e.Path, r.Len()))
			continue
		}
		if h.Xid != xid {
			d.fail("%s, client %d: reply %+v instead of xid %d to %s", s.name, i, h, xid, a.what)
		}
		f.head = h
		if h.Err == wire.OK && a.read != nil {
			f.fields = a.read(r)
		}
		f.fields = append(f.fields, plain("%d bytes left, %v", r.Len(), r.Err()))
		if a.noZxid {
			f.head.Zxid = 0
		}
		return f
	}
}

// same compares the two sides' answers to what client i asked.
func (d *differ) same(i int, q ask, got [2]frames, anyOrder bool) {
	d.t.Helper()
	a, b := got[0], got[1]
	d.events += len(a.events)
	if anyOrder {
		slices.Sort(a.events)
		slices.Sort(b.events)
	}
	what := fmt.Sprintf("client %d: %s", i, q.what)
	if !slices.Equal(a.events, b.events) {
		d.fail("%s: watch events differ\nours:      %q before %+v\nZooKeeper: %q before %+v", what, a.events, a.head, b.events, b.head)
	}
	if a.head.Err != b.head.Err || a.head.Xid != b.head.Xid {
		d.fail("%s: ours %+v, ZooKeeper %+v", what, a.head, b.head)
	}
	if len(a.fields) != len(b.fields) {
		d.fail("%s: ours %v\nZooKeeper %v", what, a.fields, b.fields)
	}
	lane := d.lane(i, q)
	for k := range a.fields {
		x, y := a.fields[k], b.fields[k]
		ok := x.text == y.text && x.kind == y.kind
		switch x.kind {
		case zxid:
			ok = ok && d.zxids.same(lane, x.n, y.n)
		case mzxid:
			ok = ok && d.zxids.same(lane, x.n, y.n) && d.state(q, pair{ours: x.n, real: y.n})
		case owner:
			ok = ok && d.sessions.same(x.n, y.n)
		}
		if !ok {
			d.fail("%s: field %d is %v, ZooKeeper says %v\nours:      %v\nZooKeeper: %v", what, k, x, y, a.fields, b.fields)
		}
	}
	if !d.head(i, lane, q, got) {
		d.fail("%s: zxid of the reply: ours %#x, ZooKeeper %#x, which has another rank; the reply before: %+v\nours:      %v\nZooKeeper: %v",
			what, a.head.Zxid, b.head.Zxid, d.heads[i], a.fields, b.fields)
	}
	d.heads[i] = pair{ours: max(a.head.Zxid, d.heads[i].ours), real: max(b.head.Zxid, d.heads[i].real)}
}

// lane is where the zxids in an answer come from.
func (d *differ) lane(i int, q ask) int {
	if d.zxids.lanes {
		return i
	}
	for k := range clients {
		if strings.HasPrefix(q.path+"/", d.laneRoot(k)+"/") {
			return k
		}
	}
	return anyLane
}

// state says whether a node's mzxid tells its states apart.
func (d *differ) state(q ask, now pair) bool {
	if q.path == "" {
		return true
	}
	was, seen := d.states[q.path]
	d.states[q.path] = now
	return !seen || (was.ours == now.ours) == (was.real == now.real)
}

// head compares the zxids in the headers of replies. Between others' writes, and where
// ours packs, it is not later than what the client has heard: a client that goes on with
// that zxid after the loss of its connection misses nothing.
func (d *differ) head(i, lane int, q ask, got [2]frames) bool {
	a, b := got[0].head.Zxid, got[1].head.Zxid
	switch {
	case a <= 0 || b <= 0:
		return a == b
	case a < d.heads[i].ours || b < d.heads[i].real:
		return false
	case d.zxids.ended(a, b): // where lanes end, the last zxids are of any two
		return true
	case !d.zxids.packs && !d.zxids.lanes:
		return d.zxids.same(lane, a, b)
	}
	switch q.op {
	case wire.OpSetData, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL: // the write's own is in its stat
		for k, f := range got[0].fields {
			if f.kind == mzxid && (f.n <= d.heads[i].ours || a > f.n || got[1].fields[k].n != b) {
				return false
			}
		}
	}
	return true
}

// learn remembers what was created, for later operations to find.
func (d *differ) learn(a ask, f frames) {
	switch a.op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		if f.head.Err == wire.OK && f.fields[0].text != d.base && !d.isLane(f.fields[0].text) { // which nobody may delete
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
	q := wire.SetWatches{Data: d.paths(), Exist: d.paths(), Child: d.paths()}
	op := wire.OpSetWatches
	if i == persistent {
		op = wire.OpSetWatches2
		q.Data, q.Exist, q.Child = nil, nil, nil
		for _, p := range append(d.paths(), d.paths()...) {
			if recursive(p) {
				q.PersistentRecur = append(q.PersistentRecur, p)
			} else {
				q.Persistent = append(q.Persistent, p)
			}
		}
	}
	set := ask{op: op, what: fmt.Sprintf("setWatches %+v after %v", q, at)}
	d.note("client %d: %s", i, set.what)
	d.done++
	var got [2]frames
	for k, s := range d.sides {
		q := q
		q.RelativeZxid = []int64{at.ours, at.real}[k]
		s.conns[i].SendAs(wire.XidSetWatches, op, func(w *wire.Writer) { q.Encode(w, op == wire.OpSetWatches2) })
		d.try(s, s.conns[i].Flush())
		got[k] = d.until(s, i, wire.XidSetWatches, set)
	}
	d.same(i, set, got, false)
}

// closeSession ends client i's session, right behind other requests, and begins another one.
func (d *differ) closeSession(i int, before []ask) {
	d.t.Helper()
	closing := ask{op: wire.OpCloseSession, what: "closeSession"}
	asks := append(slices.Clip(before), closing)
	xids := d.send(i, asks)
	for k, a := range asks {
		var got [2]frames
		for n, s := range d.sides {
			got[n] = d.until(s, i, xids[k], a)
		}
		d.same(i, a, got, k == len(before))
		if k < len(before) {
			d.learn(a, got[0])
		}
	}
	for _, s := range d.sides {
		if _, _, err := s.conns[i].Next(); err == nil {
			d.fail("%s says more after the session has closed", s.name)
		}
	}
	d.heads[i] = pair{}
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
	var victims [2]*client.Conn
	for k, s := range d.sides {
		c, err := client.Dial(s.addr, wire.ConnectRequest{TimeoutMS: lostMS}, within)
		d.try(s, err)
		ids[k], victims[k] = c.Session.SessionID, c
		if c.Session.TimeoutMS != lostMS {
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
			if h.Err == wire.OK {
				got[k].fields = a.read(r)
			}
		}
		a.what = "the session to be lost: " + a.what
		d.same(i, a, got, false)
		if p == sentinel && got[0].head.Err != wire.OK {
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
			s.conns[i].SendAs(pollXid, wire.OpExists, (&wire.PathWatch{Path: sentinel}).Encode)
			h := d.collect(s, i, pollXid, &got[k][i])
			for j := range clients { // who is silent runs out, too
				s.conns[j].SendAs(wire.XidPing, wire.OpPing, nil)
				d.collect(s, j, wire.XidPing, &got[k][j])
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
		d.same(j, ask{what: "a session is lost"}, [2]frames{got[0][j], got[1][j]}, true)
	}
}

const (
	pollXid int32     = 1 << 30
	noNode  wire.Code = -101
)

// collect sends what is queued, reads up to a reply and keeps the events.
func (d *differ) collect(s *side, i int, xid int32, f *frames) wire.ReplyHeader {
	d.t.Helper()
	d.try(s, s.conns[i].Flush())
	g := d.until(s, i, xid, ask{what: "poll"})
	f.events = append(f.events, g.events...)
	return g.head
}
