package server

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

func TestSessions(t *testing.T) {
	h := open(t, Config{})
	for wish, want := range map[int32]int32{0: 4000, 4001: 4001, 1 << 30: 40_000, -5: 4000} {
		if got := h.dial().connect(wire.ConnectRequest{TimeoutMS: wish}).Session.TimeoutMS; got != want {
			t.Errorf("asked for %d ms, got %d, want %d", wish, got, want)
		}
	}
	a := h.connect(wire.ConnectRequest{HasReadOnly: true, ReadOnly: true})
	if a.Session.SessionID == 0 || len(a.Session.Password) != 16 || !a.Session.HasReadOnly || a.Session.ReadOnly {
		t.Fatalf("session: %+v", a.Session)
	}
	if b := h.connect(wire.ConnectRequest{}); b.Session.SessionID == a.Session.SessionID || bytes.Equal(a.Session.Password, b.Session.Password) {
		t.Errorf("two sessions alike: %+v", b.Session)
	}
	for name, q := range map[string]wire.ConnectRequest{
		"wrong password":  {SessionID: a.Session.SessionID, Password: make([]byte, 16)},
		"no password":     {SessionID: a.Session.SessionID},
		"unknown session": {SessionID: 12345, Password: a.Session.Password},
	} {
		if w := h.connect(q); w.Session.SessionID != 0 || w.Session.TimeoutMS != 0 {
			t.Errorf("%s: %+v", name, w.Session)
		} else {
			w.gone()
		}
	}
	c := h.connect(wire.ConnectRequest{SessionID: a.Session.SessionID, Password: a.Session.Password})
	if c.Session.SessionID != a.Session.SessionID {
		t.Errorf("resumed: %+v", c.Session)
	}
	a.gone() // the session has moved
	c.ask(7, wire.OpCloseSession)
	c.code(7, wire.OK)
	c.gone()
	if w := h.connect(wire.ConnectRequest{SessionID: a.Session.SessionID, Password: a.Session.Password}); w.Session.SessionID != 0 {
		t.Errorf("a closed session came back: %+v", w.Session)
	}
}

func TestSessionExpires(t *testing.T) {
	const alive = 1500 * time.Millisecond // long enough for a busy machine to send the answer that opens it
	h := open(t, Config{MinSessionTimeout: alive, MaxSessionTimeout: time.Minute})
	start := time.Now()
	w := h.connect(wire.ConnectRequest{TimeoutMS: int32(alive.Milliseconds())})
	w.gone() // says nothing any more
	if took := time.Since(start); took < alive {
		t.Errorf("expired after %v", took)
	}
	if w := h.connect(wire.ConnectRequest{SessionID: w.Session.SessionID, Password: w.Session.Password}); w.Session.SessionID != 0 {
		t.Errorf("an expired session came back: %+v", w.Session)
	}
	live := h.connect(wire.ConnectRequest{TimeoutMS: 60_000})
	for xid := range int32(3) {
		live.ask(xid, wire.OpPing)
		live.code(xid, wire.OK)
	}
}

func TestClientFromTheFuture(t *testing.T) {
	h := open(t, Config{})
	w := h.dial()
	w.write(wire.Frame((&wire.ConnectRequest{LastZxidSeen: 1}).Encode))
	w.gone()
}

func TestCodes(t *testing.T) {
	h := open(t, Config{})
	h.register()
	w := h.connect(wire.ConnectRequest{})
	cut := func(w *wire.Writer) { w.Int32(9); w.String("/") } // ends within itself
	node := (&wire.PathVersion{Path: "/a"}).Encode
	for i, tc := range []struct {
		op   wire.Op
		body func(*wire.Writer)
		want wire.Code
	}{
		{wire.OpGetData, on("/zookeeper", false), wire.OK},
		{wire.OpGetData, on("zookeeper", false), wire.NoNode},
		{wire.OpGetData, on("", false), wire.OK}, // to ZooKeeper, too, this is the root
		{wire.OpGetData, on("/zookeeper/", false), wire.NoNode},
		{wire.OpExists, on("/a\x00b", false), wire.BadArguments},
		{wire.OpDelete, node, wire.NotReadOnly},
		{wire.OpCheck, node, wire.NotReadOnly},
		{wire.OpCreate, func(w *wire.Writer) { (&wire.CreateRequest{Path: "/a"}).Encode(w, false) }, wire.NotReadOnly},
		{wire.OpCreateTTL, func(w *wire.Writer) { (&wire.CreateRequest{Path: "/a"}).Encode(w, true) }, wire.NotReadOnly},
		{wire.OpSetData, (&wire.SetDataRequest{Path: "/a"}).Encode, wire.NotReadOnly},
		{wire.OpSetACL, (&wire.SetACLRequest{Path: "/a"}).Encode, wire.NotReadOnly},
		{wire.OpMulti, wire.MultiEnd().Encode, wire.NotReadOnly},
		{wire.OpAddWatch, (&wire.PathMode{Path: "/a", Mode: 2}).Encode, wire.MarshallingError},
		{wire.OpRemoveWatches, (&wire.PathMode{Path: "/a", Mode: 3}).Encode, wire.NoWatcher},
		{wire.OpCheckWatches, (&wire.PathMode{Path: "/a", Mode: 9}).Encode, wire.MarshallingError},
		{wire.OpMultiRead, (&wire.MultiHeader{Op: wire.OpCreate}).Encode, wire.MarshallingError},
		// What cannot be read is answered, and the connection lives on.
		{wire.OpGetData, cut, wire.MarshallingError},
		{wire.OpGetData, func(w *wire.Writer) { w.Int32(-1); w.Bool(false) }, wire.MarshallingError},
		{wire.OpExists, func(w *wire.Writer) { w.Int32(1 << 30) }, wire.MarshallingError},
		{wire.OpSetWatches, func(w *wire.Writer) { w.Int64(0); w.Int32(1 << 30) }, wire.MarshallingError},
		{wire.OpMulti, func(w *wire.Writer) { (&wire.MultiHeader{Op: wire.OpGetData}).Encode(w); on("/", false)(w) }, wire.MarshallingError},
		{wire.OpMultiRead, func(w *wire.Writer) { (&wire.MultiHeader{Op: wire.OpGetData}).Encode(w); on("/", false)(w) }, wire.MarshallingError},
		{wire.OpCreate, cut, wire.MarshallingError},
		{wire.OpGetACL, func(*wire.Writer) {}, wire.MarshallingError},
	} {
		w.ask(int32(i), tc.op, tc.body)
		h, r := w.reply(int32(i))
		if h.Err != tc.want || h.Zxid != 1 || (h.Err != wire.OK && r.Len() != 0) {
			t.Errorf("%d, op %d: %+v and %d bytes, want code %d", i, tc.op, h, r.Len(), tc.want)
		}
	}
	for _, op := range []wire.Op{wire.Op(4711), wire.OpNotification, wire.OpCreateSession} {
		w := h.connect(wire.ConnectRequest{})
		w.ask(98, op, on("/a", false))
		w.code(98, wire.Unimplemented)
		w.gone() // as ZooKeeper
	}
	w.ask(99, wire.OpAuth, (&wire.AuthPacket{Scheme: "sasl"}).Encode)
	w.code(99, wire.AuthFailed)
	w.gone()
}

func TestMultiRead(t *testing.T) {
	h := open(t, Config{})
	h.register()
	h.state(replica.State_AVAILABLE)
	w := h.connect(wire.ConnectRequest{})
	part := func(op wire.Op, path string) func(*wire.Writer) {
		return func(w *wire.Writer) { (&wire.MultiHeader{Op: op, Err: -1}).Encode(w); on(path, false)(w) }
	}
	w.ask(1, wire.OpMultiRead, part(wire.OpGetData, replicaPath), part(wire.OpGetData, "/none"),
		part(wire.OpGetChildren, "/zookeeper"), part(wire.OpGetData, "/@1"+replicaPath), part(wire.OpGetChildren, "/@9"), wire.MultiEnd().Encode)
	head, r := w.reply(1)
	if head.Err != wire.OK {
		t.Fatalf("%+v", head)
	}
	var m wire.MultiHeader
	var st wire.Stat
	check := func(op wire.Op, code wire.Code, got func() string, want string) {
		t.Helper()
		m.Decode(r)
		if g := got(); m.Op != op || m.Err != code || m.Done || g != want {
			t.Errorf("part %+v %s, want op %d %s", m, g, op, want)
		}
	}
	data := func() string { b := string(r.Buffer()); st.Decode(r); return b }
	failed := func() string { return fmt.Sprint(r.Int32()) }
	check(wire.OpGetData, wire.OK, data, availableBytes)
	check(wire.OpError, wire.NoNode, failed, "-101")
	check(wire.OpGetChildren, wire.OK, func() string { return fmt.Sprint(r.Strings()) }, "[config quota]")
	check(wire.OpGetData, wire.OK, data, loadingBytes)
	check(wire.OpError, wire.NoNode, failed, "-101")
	if m.Decode(r); m != *wire.MultiEnd() || r.Err() != nil || r.Len() != 0 {
		t.Errorf("end %+v, %v, %d left", m, r.Err(), r.Len())
	}
}

func TestSetWatches(t *testing.T) {
	h := open(t, Config{})
	h.register()                     // 1
	h.state(replica.State_AVAILABLE) // 2
	h.load("a")                      // 3
	for _, two := range []bool{false, true} {
		w := h.connect(wire.ConnectRequest{})
		op := wire.OpSetWatches
		if two {
			op = wire.OpSetWatches2
		}
		q := wire.SetWatches{
			RelativeZxid: 2,
			Data:         []string{"/none", "/demo/portal/a", replicaPath, "/@1/demo"},
			Exist:        []string{"/demo/portal/a", "/demo/portal/b"},
			Child:        []string{"/demo/portal", "/demo/service", "/none"},
		}
		w.ask(wire.XidSetWatches, op, func(w *wire.Writer) { q.Encode(w, two) })
		w.notice(tree.Deleted, "/none")
		w.notice(tree.DataChanged, "/demo/portal/a")
		w.notice(tree.Created, "/demo/portal/a")
		w.notice(tree.ChildrenChanged, "/demo/portal")
		w.notice(tree.Deleted, "/none")
		w.code(wire.XidSetWatches, wire.OK)
		if n := h.watches.Count(); n != 3 { // the replica, portal/b, the services
			t.Errorf("%d watches are set, want 3", n)
		}
		w.Close()
		h.idle()
	}
	w := h.connect(wire.ConnectRequest{})
	q := wire.SetWatches{RelativeZxid: 3, Exist: []string{"/demo/portal/b"}, Child: []string{"/demo/portal"}}
	w.ask(wire.XidSetWatches, wire.OpSetWatches, func(w *wire.Writer) { q.Encode(w, false) })
	w.code(wire.XidSetWatches, wire.OK)
	h.load("b")
	w.notice(tree.Created, "/demo/portal/b")
	w.notice(tree.ChildrenChanged, "/demo/portal")
}

// idle waits until no connection is left.
func (h *harness) idle() {
	h.t.Helper()
	deadline := time.Now().Add(within)
	for len(h.connections()) > 0 {
		if time.Now().After(deadline) {
			h.t.Fatal("connections stay open")
		}
	}
	if n := h.watches.Count(); n != 0 {
		h.t.Errorf("%d watches outlive their connection", n)
	}
}

// A node that two kinds of watches of one client see deleted is reported once.
func TestDeletedOnce(t *testing.T) {
	h := open(t, Config{})
	h.register()
	w := h.connect(wire.ConnectRequest{})
	w.ask(1, wire.OpGetData, on(replicaPath, true))
	w.code(1, wire.OK)
	w.ask(2, wire.OpGetChildren, on(replicaPath, true))
	w.code(2, wire.OK)
	w.ask(3, wire.OpExists, on(replicaPath, true))
	w.code(3, wire.OK)
	h.lost()
	w.notice(tree.Deleted, replicaPath)
	w.ask(4, wire.OpPing)
	w.code(4, wire.OK)
}

// No reply may show a change before the event of the watch that was set before it.
func TestEventBeforeReply(t *testing.T) {
	h := open(t, Config{})
	h.register()
	const changes = 300
	turn := make(chan struct{}, changes) // one change per reply, while the next request is on its way
	go func() {
		for i := range changes {
			<-turn
			st := replica.State_AVAILABLE
			if i%2 == 1 {
				st = replica.State_LOADING
			}
			h.append("replica", "movie/ps:0/0", stateOf(st))
		}
	}()
	w := h.connect(wire.ConnectRequest{})
	var shown, zxid int64
	watched, events := false, 0
	w.ask(1, wire.OpGetData, on(replicaPath, true))
	w.ask(1, wire.OpGetData, on(replicaPath, true))
	for shown < changes+1 {
		r := w.next()
		var head wire.ReplyHeader
		head.Decode(r)
		if head.Xid == wire.XidNotification {
			if !watched {
				t.Fatalf("an event without a watch, at %d", shown)
			}
			watched = false
			events++
			continue
		}
		r.Buffer()
		var st wire.Stat
		if st.Decode(r); r.Err() != nil {
			t.Fatal(r.Err())
		}
		if head.Zxid < zxid || st.Mzxid > head.Zxid {
			t.Fatalf("zxid %d after %d, node of %d", head.Zxid, zxid, st.Mzxid)
		}
		if watched && st.Mzxid != shown {
			t.Fatalf("the reply shows %d, the watch set at %d has not fired", st.Mzxid, shown)
		}
		shown, zxid, watched = st.Mzxid, head.Zxid, true
		select {
		case turn <- struct{}{}:
		default: // all changes are under way
		}
		w.ask(1, wire.OpGetData, on(replicaPath, true))
	}
	if events == 0 {
		t.Error("no event at all")
	}
}

func TestSyncSeesWhatIsStored(t *testing.T) {
	h := open(t, Config{})
	w := h.connect(wire.ConnectRequest{})
	for i := range 20 {
		seq := h.append("replica", "movie/ps:0/0", stateOf(replica.State_END)) // not waited for
		w.ask(int32(i), wire.OpSync, (&wire.Path{Path: "/x"}).Encode)
		head, r := w.reply(int32(i))
		if head.Err != wire.OK || uint64(head.Zxid) < seq || r.String() != "/x" {
			t.Fatalf("sync after %d: %+v", seq, head)
		}
	}
}

func TestBadFramesEndTheConnection(t *testing.T) {
	h, hasty := open(t, Config{MaxFrame: 100}), open(t, Config{MaxFrame: 100, HandshakeTimeout: 50 * time.Millisecond})
	big := wire.Frame(func(w *wire.Writer) { w.B = append(w.B, make([]byte, 101)...) })
	for name, tc := range map[string]struct{ before, after []byte }{
		"silence":           {nil, nil},
		"oversized connect": {big, nil},
		"negative length":   {[]byte{0xff, 0xff, 0xff, 0xff}, nil},
		"connect cut short": {wire.Frame(func(w *wire.Writer) { w.Int32(0) }), nil},
		"half a frame":      {[]byte{0, 0, 0, 10, 1}, nil},
		"oversized request": {nil, big},
		"empty request":     {nil, []byte{0, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var w *wireClient
			if tc.after != nil {
				w = h.connect(wire.ConnectRequest{})
			} else {
				w = hasty.dial()
			}
			w.t = t
			w.write(append(tc.before, tc.after...))
			w.gone()
		})
	}
	h.connect(wire.ConnectRequest{}) // and it still serves
	hasty.dial().gone()              // and it still hears who comes
}

func TestLimits(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := open(t, Config{MaxConns: 2, MaxSessions: 3, MaxWatches: 2, Metrics: reg})
	a := h.connect(wire.ConnectRequest{})
	for xid, path := range []string{"/1", "/2", "/1"} {
		a.ask(int32(xid), wire.OpExists, on(path, true))
		a.code(int32(xid), wire.NoNode)
	}
	a.ask(9, wire.OpExists, on("/3", true))
	a.code(9, wire.ThrottledOp)
	for _, back := range []wire.SetWatches{{Exist: []string{"/3", "/1"}}, {Persistent: []string{"/3"}}, {PersistentRecur: []string{"/3"}}} { // of a client that comes back
		a.ask(wire.XidSetWatches, wire.OpSetWatches2, func(w *wire.Writer) { back.Encode(w, true) })
		a.code(wire.XidSetWatches, wire.ThrottledOp)
	}
	b := h.connect(wire.ConnectRequest{})
	third := h.dial()
	third.write(wire.Frame((&wire.ConnectRequest{}).Encode))
	third.gone()
	b.Close()
	a.Close()
	h.idle()
	h.connect(wire.ConnectRequest{}).Close()
	h.idle()
	w := h.dial() // a fourth session
	w.write(wire.Frame((&wire.ConnectRequest{}).Encode))
	w.gone()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
	}
	if got["monolith_zk_sessions"] != 3 || got["monolith_zk_refused_total"] != 1 || got["monolith_zk_received_total"] < 7 {
		t.Errorf("metrics: %v", got)
	}
}

// A client that does not read is not read either, and let go by its write deadline.
func TestClientThatDoesNotRead(t *testing.T) {
	h := open(t, Config{MaxQueuedBytes: 1 << 20, WriteTimeout: 50 * time.Millisecond})
	h.register()
	w := h.connect(wire.ConnectRequest{})
	request := wire.Frame((&wire.RequestHeader{Xid: 1, Op: wire.OpGetData}).Encode, on(replicaPath, false))
	flood := bytes.Repeat(request, 1000)
	for range 10_000 {
		if _, err := w.Net().Write(flood); err != nil {
			var ne net.Error
			if ok := asNet(err, &ne); ok && ne.Timeout() {
				t.Fatal("the server neither reads nor hangs up")
			}
			h.idle()
			if n := h.stats.slow.Load(); n != 1 {
				t.Errorf("%d clients were let go for being slow", n)
			}
			return
		}
	}
	t.Fatal("the server took every request without being read")
}

func asNet(err error, ne *net.Error) bool {
	e, ok := err.(net.Error)
	*ne = e
	return ok
}

func TestRestartedServerHasOtherSessions(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { b.Close() })
	port, err := freeport.Find() // it comes back there
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprint("127.0.0.1:", port)
	h := openOn(t, Config{Listen: addr}, b)
	h.register()
	a := h.connect(wire.ConnectRequest{})
	h.stop()
	a.gone()
	h = openOn(t, Config{Listen: addr}, b)
	if w := h.connect(wire.ConnectRequest{SessionID: a.Session.SessionID, Password: a.Session.Password, LastZxidSeen: 1}); w.Session.SessionID != 0 {
		t.Errorf("resumed: %+v", w.Session)
	}
	if w := h.connect(wire.ConnectRequest{LastZxidSeen: 1}); w.Session.SessionID == 0 || w.Session.SessionID == a.Session.SessionID {
		t.Errorf("new: %+v", w.Session)
	}
}

func TestRunReportsABusyPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	b := mem.New()
	defer b.Close()
	s := New(Config{Listen: ln.Addr().String()}, b.Log(), follow.New(b.Log(), znodeView, follow.Options{}), nil)
	if err := s.Run(context.Background()); err == nil || s.Addr() != "" {
		t.Errorf("Run = %v, Addr = %q", err, s.Addr())
	}
}

// Whatever a client says, the server answers or hangs up, and proposes nothing that the
// log would refuse.
func FuzzHandle(f *testing.F) {
	for _, op := range []wire.Op{wire.OpGetData, wire.OpGetChildren2, wire.OpGetACL, wire.OpSync, wire.OpExists, wire.OpPing, wire.OpCloseSession, wire.OpWhoAmI} {
		f.Add(wire.Frame((&wire.RequestHeader{Xid: 1, Op: op}).Encode, on("/zookeeper", true))[4:])
		f.Add(wire.Frame((&wire.RequestHeader{Xid: 1, Op: op}).Encode, on("/@0/zookeeper", true))[4:])
	}
	add := func(op wire.Op, parts ...func(*wire.Writer)) {
		f.Add(wire.Frame(append([]func(*wire.Writer){(&wire.RequestHeader{Xid: 1, Op: op}).Encode}, parts...)...)[4:])
	}
	q := wire.SetWatches{Data: []string{"/a"}, Exist: []string{"/"}, Child: []string{"/b"}, Persistent: []string{"/c"}, PersistentRecur: []string{"/"}}
	add(wire.OpSetWatches2, func(w *wire.Writer) { q.Encode(w, true) })
	add(wire.OpMultiRead, (&wire.MultiHeader{Op: wire.OpGetData}).Encode, on("/", false), wire.MultiEnd().Encode)
	add(wire.OpAuth, (&wire.AuthPacket{Scheme: "digest", Auth: []byte("a:b")}).Encode)
	add(wire.OpAddWatch, (&wire.PathMode{Path: "/", Mode: 1}).Encode)
	add(wire.OpRemoveWatches, (&wire.PathMode{Path: "/", Mode: 3}).Encode)
	add(wire.OpCreate, creating("/a", 3))
	add(wire.OpCreateTTL, creating("/a\xff", 5), func(w *wire.Writer) { w.Int64(5) })
	add(wire.OpSetData, setting("/a", "x"))
	add(wire.OpDelete, (&wire.PathVersion{Path: "/a", Version: -1}).Encode)
	add(wire.OpSetACL, (&wire.SetACLRequest{Path: "/a", ACL: open31}).Encode)
	add(wire.OpMulti, (&wire.MultiHeader{Op: wire.OpCreate}).Encode, creating("/a", 0), (&wire.MultiHeader{Op: wire.OpCheck}).Encode,
		(&wire.PathVersion{Path: "/a"}).Encode, wire.MultiEnd().Encode)
	b := mem.New()
	f.Cleanup(func() { b.Close() })
	p := &judge{}
	s := New(Config{Proposer: p}, b.Log(), newTree(b), nil)
	f.Fuzz(func(t *testing.T, frame []byte) {
		p.t = t
		nc, peer := net.Pipe()
		defer peer.Close()
		c := newConn(s, silent{nc})
		c.id.Store(7)
		defer s.watches.Drop(c.watcher)
		if err := c.handle(t.Context(), frame); err == nil {
			if n, _ := c.out.Waiting(); n == 0 && !c.out.Ended() {
				t.Error("neither answer nor error")
			}
		}
		s.waiting.giveBack(c.held)
		if len(s.slots) != 0 || s.waiting.used.Load() != 0 {
			t.Fatal("a slot or bytes are taken for ever")
		}
	})
}

// silent swallows what is written to it, and says nothing.
type silent struct{ net.Conn }

func (silent) Write(b []byte) (int, error) { return len(b), nil }
func (silent) RemoteAddr() net.Addr        { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// judge decides proposals at once: each is one that the log would take, and is refused.
type judge struct{ t *testing.T }

func (j *judge) Propose(e *znode.Event, done func(uint64, *tree.Outcome, error)) {
	if err := e.Validate(znode.Aggregate); err != nil {
		j.t.Errorf("a proposal that no log takes: %v", err)
	}
	if _, err := events.Marshal(e); err != nil {
		j.t.Errorf("a proposal that cannot be written down: %v", err)
	}
	o := &tree.Outcome{Code: wire.NoNode, Multi: e.GetProposed().GetMulti()}
	for range e.GetProposed().GetOps() {
		o.Results = append(o.Results, tree.Result{Code: wire.NoNode})
	}
	done(1, o, nil)
}
func (*judge) Touch(int64)    {}
func (*judge) Writable() bool { return true }
