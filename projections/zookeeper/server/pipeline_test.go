package server

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

var open31 = []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

func creating(path string, flags int32) func(*wire.Writer) {
	return func(w *wire.Writer) {
		(&wire.CreateRequest{Path: path, Data: []byte("x"), ACL: open31, Flags: flags}).Encode(w, false)
	}
}

func setting(path, data string) func(*wire.Writer) {
	return (&wire.SetDataRequest{Path: path, Data: []byte(data), Version: -1}).Encode
}

// A session's reads wait for its writes, in a pipeline as long as one likes; those of
// other sessions do not wait.
func TestFIFOPerSession(t *testing.T) {
	h, testProposer := writable(t, Config{})
	a, b := h.connect(wire.ConnectRequest{}), h.connect(wire.ConnectRequest{})
	hold := make(chan struct{})
	testProposer.pause(hold)
	const n = 200
	a.ask(0, wire.OpCreate, creating("/a", 0))
	for i := int32(1); i <= n; i++ {
		a.ask(2*i-1, wire.OpSetData, setting("/a", fmt.Sprint(i)))
		a.ask(2*i, wire.OpGetData, on("/a", false))
	}
	a.ask(2*n+1, wire.OpPing)
	b.ask(1, wire.OpExists, on("/a", false))
	b.code(1, wire.NoNode) // while the others wait
	<-time.After(20 * time.Millisecond)
	close(hold)
	a.code(0, wire.OK)
	for i := int32(1); i <= n; i++ {
		set, _ := a.reply(2*i - 1)
		get, r := a.reply(2 * i)
		if data := string(r.Buffer()); set.Err != wire.OK || data != fmt.Sprint(i) || get.Zxid != set.Zxid {
			t.Fatalf("write %d: %+v, read behind it: %+v %q", i, set, get, data)
		}
	}
	a.code(2*n+1, wire.OK)
	if l := &h.stats.latency; l.max.Load() < int64(20*time.Millisecond) || l.min.Load() < 0 || l.avg() < 10 { // nearly all have waited
		t.Errorf("latencies of %d to %d ns, %v ms on average", l.min.Load(), l.max.Load(), l.avg())
	}
	b.ask(2, wire.OpGetData, on("/a", false))
	b.code(2, wire.OK)
}

// What is over the limits is not read; nothing is lost by it.
func TestOutstandingWritesAreBounded(t *testing.T) {
	h, testProposer := writable(t, Config{MaxOutstanding: 3, MaxWrites: 5})
	a, b := h.connect(wire.ConnectRequest{}), h.connect(wire.ConnectRequest{})
	a.ask(-1, wire.OpCreate, creating("/a", 0))
	a.code(-1, wire.OK)
	hold := make(chan struct{})
	testProposer.pause(hold)
	for i := range int32(10) {
		a.ask(i, wire.OpSetData, setting("/a", "a"))
		b.ask(i, wire.OpSetData, setting("/a", "b"))
	}
	wait.For(t, "the limit", func() bool { return len(h.slots) == 5 })
	for _, c := range h.connections() {
		if n := c.pipe.len(); n > 3 {
			t.Errorf("%d requests of one connection wait", n)
		}
	}
	close(hold)
	for i := range int32(10) {
		a.code(i, wire.OK)
		b.code(i, wire.OK)
	}
	if len(h.slots) != 0 {
		t.Errorf("%d slots are taken for ever", len(h.slots))
	}
}

// A write of which nothing is known ends the connection; the session goes on.
func TestFailedProposalEndsTheConnection(t *testing.T) {
	h, testProposer := writable(t, Config{})
	a := h.connect(wire.ConnectRequest{})
	testProposer.fail.Store(true)
	a.ask(1, wire.OpCreate, creating("/a", 0))
	a.ask(2, wire.OpPing)
	a.gone()
	testProposer.fail.Store(false)
	b := h.connect(wire.ConnectRequest{SessionID: a.Session.SessionID, Password: a.Session.Password})
	if b.Session.SessionID != a.Session.SessionID {
		t.Errorf("the session is gone: %+v", b.Session)
	}
	testProposer.standby.Store(true)
	b.gone() // another registry writes now
	h.dialAndSay(wire.ConnectRequest{}).gone()
}

// A client that comes while nobody writes is served once this registry does.
func TestAClientWaitsForTheWriter(t *testing.T) {
	h, testProposer := writable(t, Config{grace: wait.Patience})
	testProposer.standby.Store(true)
	c := h.dialAndSay(wire.ConnectRequest{})
	wait.For(t, "a client waits for a writer", func() bool { return len(h.connections()) == 1 })
	testProposer.standby.Store(false) // this one, after a moment
	c.next()
}

func (h *harness) dialAndSay(q wire.ConnectRequest) *wireClient {
	w := h.dial()
	w.write(wire.Frame(q.Encode))
	return w
}

// Sessions are facts: they outlive the server, and every server of the log knows them.
func TestSessionsOutliveTheServer(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { b.Close() })
	h, _ := writableOn(t, Config{}, b)
	a := h.connect(wire.ConnectRequest{TimeoutMS: 35_000})
	a.ask(1, wire.OpCreate, creating("/e", 1))
	made, _ := a.reply(1)
	other, _ := writableOn(t, Config{}, b)
	q := wire.ConnectRequest{SessionID: a.Session.SessionID, Password: a.Session.Password, LastZxidSeen: made.Zxid}
	c := other.connect(q)
	if c.Session.SessionID != a.Session.SessionID || c.Session.TimeoutMS != 35_000 {
		t.Fatalf("at another server: %+v", c.Session)
	}
	h.stop()
	a.gone()
	h, _ = writableOn(t, Config{}, b)
	if c = h.connect(q); c.Session.SessionID != a.Session.SessionID {
		t.Fatalf("after a restart: %+v", c.Session)
	}
	for prefix, want := range map[string]string{"": "[/e]", " ": "[/e]", " / ": "[/e]", "/": "[/e]", "/e": "[/e]", "/x": "[]"} {
		c.ask(1, wire.OpGetEphemerals, (&wire.Path{Path: prefix}).Encode)
		if _, r := c.reply(1); fmt.Sprint(r.Strings()) != want {
			t.Errorf("%q: the session's ephemerals are not %s any more", prefix, want)
		}
	}
	wrong := q
	wrong.Password = make([]byte, 16)
	if w := h.connect(wrong); w.Session.SessionID != 0 || w.Session.TimeoutMS != 0 {
		t.Errorf("with a wrong password: %+v", w.Session)
	}
	q.LastZxidSeen = 1 << 40
	h.dialAndSay(q).gone() // it has seen what this server has not
}

func TestExpiryTakesEphemeralsAway(t *testing.T) {
	h, _ := writable(t, Config{MinSessionTimeout: 50 * time.Millisecond})
	watcher := h.connect(wire.ConnectRequest{TimeoutMS: 40_000})
	watcher.ask(1, wire.OpAddWatch, (&wire.PathMode{Path: "/e"}).Encode)
	watcher.code(1, wire.OK)
	a := h.connect(wire.ConnectRequest{TimeoutMS: 2000})
	a.ask(1, wire.OpCreate, creating("/e", 1))
	a.code(1, wire.OK)
	watcher.notice(tree.Created, "/e")
	watcher.notice(tree.Deleted, "/e")
	a.gone()
	watcher.ask(1, wire.OpRemoveWatches, (&wire.PathMode{Path: "/e", Mode: 4}).Encode)
	watcher.code(1, wire.OK)
	if w := h.connect(wire.ConnectRequest{SessionID: a.Session.SessionID, Password: a.Session.Password}); w.Session.SessionID != 0 {
		t.Errorf("an expired session came back: %+v", w.Session)
	}
	b := h.connect(wire.ConnectRequest{TimeoutMS: 40_000})
	b.ask(1, wire.OpCreate, creating("/e", 1))
	b.code(1, wire.OK)
	watcher.ask(2, wire.OpExists, on("/e", true))
	watcher.code(2, wire.OK)
	b.ask(2, wire.OpCloseSession)
	b.code(2, wire.OK)
	b.gone()
	watcher.notice(tree.Deleted, "/e")
}

func TestPersistentWatches(t *testing.T) {
	h, _ := writable(t, Config{})
	w := h.connect(wire.ConnectRequest{})
	set := func(xid int32, op wire.Op, path string, mode int32, want wire.Code) {
		t.Helper()
		w.ask(xid, op, (&wire.PathMode{Path: path, Mode: mode}).Encode)
		w.code(xid, want)
	}
	set(1, wire.OpAddWatch, "/a", 1, wire.OK)   // recursive
	set(2, wire.OpAddWatch, "/a/b", 0, wire.OK) // persistent
	set(3, wire.OpCheckWatches, "/a", 5, wire.OK)
	set(4, wire.OpCheckWatches, "/a", 2, wire.NoWatcher)
	w.ask(5, wire.OpExists, on("/a/b", true)) // and a one-shot one beside it
	w.code(5, wire.NoNode)
	for i, path := range []string{"/a", "/a/b", "/a/b/c"} {
		w.ask(int32(10+i), wire.OpCreate, creating(path, 0))
		w.notice(tree.Created, path)
		if i == 2 {
			w.notice(tree.ChildrenChanged, "/a/b")
		}
		w.code(int32(10+i), wire.OK)
	}
	w.ask(20, wire.OpSetData, setting("/a/b", "y"))
	w.notice(tree.DataChanged, "/a/b") // once, however many watches see it
	w.code(20, wire.OK)
	set(21, wire.OpRemoveWatches, "/a", 5, wire.OK)
	set(22, wire.OpRemoveWatches, "/a", 5, wire.NoWatcher)
	w.ask(23, wire.OpDelete, (&wire.PathVersion{Path: "/a/b/c", Version: -1}).Encode)
	w.notice(tree.ChildrenChanged, "/a/b")
	w.code(23, wire.OK)
	set(24, wire.OpRemoveWatches, "/a/b", 3, wire.OK)
	w.ask(25, wire.OpSetWatches2, func(b *wire.Writer) {
		(&wire.SetWatches{RelativeZxid: 1, Persistent: []string{"/a"}, PersistentRecur: []string{"/a/b"}}).Encode(b, true)
	})
	w.code(25, wire.OK)
	w.ask(26, wire.OpCreate, creating("/a/b/d", 0))
	w.notice(tree.Created, "/a/b/d")
	w.code(26, wire.OK)
	w.Close()
	h.idle()
}

// Who may not read a node does not learn of its changes either.
func TestWatchesRespectACLs(t *testing.T) {
	h, _ := writable(t, Config{})
	owner, other := h.connect(wire.ConnectRequest{}), h.connect(wire.ConnectRequest{})
	owner.ask(wire.XidAuth, wire.OpAuth, (&wire.AuthPacket{Scheme: "digest", Auth: []byte("u:p")}).Encode)
	owner.code(wire.XidAuth, wire.OK)
	for _, w := range []*wireClient{owner, other} {
		w.ask(1, wire.OpAddWatch, (&wire.PathMode{Path: "/s", Mode: 1}).Encode)
		w.code(1, wire.OK)
	}
	owner.ask(2, wire.OpCreate, func(w *wire.Writer) {
		(&wire.CreateRequest{Path: "/s", ACL: []wire.ACL{{Perms: 31, Scheme: "auth"}}}).Encode(w, false)
	})
	owner.notice(tree.Created, "/s")
	owner.code(2, wire.OK)
	other.ask(2, wire.OpGetData, on("/s", false))
	other.code(2, wire.NoAuth) // and nothing came before
	owner.ask(3, wire.OpGetACL, (&wire.Path{Path: "/s"}).Encode)
	if _, r := owner.reply(3); fmt.Sprint(wire.DecodeACLs(r)) != "[{31 digest "+Digest("u:p").Id+"}]" {
		t.Error("the list of auth is not the identity")
	}
	owner.ask(4, wire.OpWhoAmI)
	if _, r := owner.reply(4); r.Int32() != 2 || r.Text()+r.Text() != "ip127.0.0.1" || r.Text()+r.Text() != "digestu" {
		t.Error("whoAmI")
	}
}

func TestTLSBeyondLoopback(t *testing.T) {
	b := mem.New()
	defer b.Close()
	s := New(Config{Listen: "0.0.0.0:0"}, b.Log(), newTree(b), nil)
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--insecure-zk") {
		t.Errorf("plain text for everybody: %v", err)
	}
	ca := certs.NewAuthority(t)
	server, err := ca.Issue("server").Load()
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.Issue("client").Load()
	if err != nil {
		t.Fatal(err)
	}
	h, _ := writable(t, Config{TLS: server})
	client.ServerName = "localhost"
	nc, err := tls.Dial("tcp", h.Addr(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	w := speaksOn(t, nc)
	w.write(wire.Frame((&wire.ConnectRequest{}).Encode))
	if w.Session.Decode(w.next()); w.Session.SessionID == 0 {
		t.Errorf("%+v", w.Session)
	}
}

func TestConnectionsPerAddress(t *testing.T) {
	h := open(t, Config{MaxConns: 10, MaxConnsPerIP: 2})
	a := h.connect(wire.ConnectRequest{})
	h.connect(wire.ConnectRequest{})
	third := h.dial()
	third.write(wire.Frame((&wire.ConnectRequest{}).Encode))
	third.gone()
	a.Close()
	wait.For(t, "room", func() bool { return len(h.connections()) == 1 })
	h.connect(wire.ConnectRequest{})
}

func TestWordsAreWhitelisted(t *testing.T) {
	say := func(h *harness, word string) string {
		w := h.dial()
		w.write([]byte(word))
		var b strings.Builder
		buf := make([]byte, 4096)
		for {
			n, err := w.Net().Read(buf)
			if b.Write(buf[:n]); err != nil {
				return b.String()
			}
		}
	}
	h, proposer := writable(t, Config{Words: []string{"*"}})
	c := h.connect(wire.ConnectRequest{})
	c.ask(1, wire.OpCreate, creating("/e", 1))
	c.code(1, wire.OK)
	c.ask(2, wire.OpExists, on("/e", true))
	c.code(2, wire.OK)
	id := hex(c.Session.SessionID)
	for word, want := range map[string]string{
		"ruok": "imok", "isro": "rw", "conf": fmt.Sprintf("clientPort=%d\nsecureClientPort=-1\n", h.addr.Load().Port), "dirs": "datadir_size: ", "srst": "Server stats reset.\n", "crst": "Connection stats reset.\n",
		"wchs": "1 connections watching 1 paths\nTotal watches:1\n", "wchp": "/e\n\t" + id + "\n", "wchc": id + "\n\t/e\n",
		"dump": id + ":\n\t/e\n", "mntr": "zk_ephemerals_count\t1\n", "cons": ",sid=" + id + ",lop=", "gtmk": "gtmk is not executed because it is not in the whitelist.\n", "envi": "\njava.version=none",
	} {
		if got := say(h, word); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", word, got, want)
		}
	}
	for _, word := range []string{"stat", "cons"} { // the one who asks as well
		if got := say(h, word); !strings.Contains(got, "[0](queued=0,recved=1,sent=0)\n") {
			t.Errorf("%s: %q", word, got)
		}
	}
	c.ask(3, wire.OpExists, on("/e", false))
	c.code(3, wire.OK)
	mntr := say(h, "mntr")
	for _, field := range []string{"uptime", "last_client_response_size", "min_client_response_size", "max_client_response_size", "open_file_descriptor_count", "max_file_descriptor_count"} {
		if _, value, ok := strings.Cut(mntr, "zk_"+field+"\t"); !ok || strings.HasPrefix(value, "-") {
			t.Errorf("%s is not told: %q", field, mntr)
		}
	}
	if got := say(h, "nope"); got != "" { // a length that no frame has
		t.Errorf("nope: %q", got)
	}
	few := open(t, Config{Words: []string{"ruok", "isro"}})
	if got := say(few, "srvr"); !strings.Contains(got, "not in the whitelist") {
		t.Errorf("srvr: %q", got)
	}
	if got := say(few, "ruok"); got != "imok" {
		t.Errorf("ruok: %q", got)
	}
	proposer.standby.Store(true)
	for where, h := range map[string]*harness{"behind another leader": h, "that proposes nothing": few} {
		if got := say(h, "isro"); got != "ro" {
			t.Errorf("isro of a server %s: %q", where, got)
		}
	}
}
