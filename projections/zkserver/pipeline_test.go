package zkserver

import (
	"crypto/tls"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/jute"
	"github.com/monolith-go/monolith/internal/mtls/mtlstest"
	"github.com/monolith-go/monolith/projections/znode"
)

var open31 = []jute.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

func creating(path string, flags int32) func(*jute.Writer) {
	return func(w *jute.Writer) {
		(&jute.CreateRequest{Path: path, Data: []byte("x"), ACL: open31, Flags: flags}).Encode(w, false)
	}
}

func setting(path, data string) func(*jute.Writer) {
	return (&jute.SetDataRequest{Path: path, Data: []byte(data), Version: -1}).Encode
}

// await waits until ok.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %v", what, within)
		}
	}
}

// A session's reads wait for its writes, in a pipeline as long as one likes; those of
// other sessions do not wait.
func TestFIFOPerSession(t *testing.T) {
	h, scribe := writable(t, Config{})
	a, b := h.connect(jute.ConnectRequest{}), h.connect(jute.ConnectRequest{})
	hold := make(chan struct{})
	scribe.pause(hold)
	const n = 200
	a.ask(0, jute.OpCreate, creating("/a", 0))
	for i := int32(1); i <= n; i++ {
		a.ask(2*i-1, jute.OpSetData, setting("/a", fmt.Sprint(i)))
		a.ask(2*i, jute.OpGetData, on("/a", false))
	}
	a.ask(2*n+1, jute.OpPing)
	b.ask(1, jute.OpExists, on("/a", false))
	b.code(1, jute.NoNode) // while the others wait
	close(hold)
	a.code(0, jute.OK)
	for i := int32(1); i <= n; i++ {
		set, _ := a.reply(2*i - 1)
		get, r := a.reply(2 * i)
		if data := string(r.Buffer()); set.Err != jute.OK || data != fmt.Sprint(i) || get.Zxid != set.Zxid {
			t.Fatalf("write %d: %+v, read behind it: %+v %q", i, set, get, data)
		}
	}
	a.code(2*n+1, jute.OK)
	b.ask(2, jute.OpGetData, on("/a", false))
	b.code(2, jute.OK)
}

// What is over the limits is not read; nothing is lost by it.
func TestOutstandingWritesAreBounded(t *testing.T) {
	h, scribe := writable(t, Config{MaxOutstanding: 3, MaxWrites: 5})
	a, b := h.connect(jute.ConnectRequest{}), h.connect(jute.ConnectRequest{})
	a.ask(-1, jute.OpCreate, creating("/a", 0))
	a.code(-1, jute.OK)
	hold := make(chan struct{})
	scribe.pause(hold)
	for i := range int32(10) {
		a.ask(i, jute.OpSetData, setting("/a", "a"))
		b.ask(i, jute.OpSetData, setting("/a", "b"))
	}
	await(t, "the limit", func() bool { return len(h.slots) == 5 })
	for _, c := range h.connections() {
		if n := c.pipe.len(); n > 3 {
			t.Errorf("%d requests of one connection wait", n)
		}
	}
	close(hold)
	for i := range int32(10) {
		a.code(i, jute.OK)
		b.code(i, jute.OK)
	}
	if len(h.slots) != 0 {
		t.Errorf("%d slots are taken for ever", len(h.slots))
	}
}

// A write of which nothing is known ends the connection; the session goes on.
func TestFailedProposalEndsTheConnection(t *testing.T) {
	h, scribe := writable(t, Config{})
	a := h.connect(jute.ConnectRequest{})
	scribe.fail.Store(true)
	a.ask(1, jute.OpCreate, creating("/a", 0))
	a.ask(2, jute.OpPing)
	a.gone()
	scribe.fail.Store(false)
	b := h.connect(jute.ConnectRequest{SessionID: a.ses.SessionID, Password: a.ses.Password})
	if b.ses.SessionID != a.ses.SessionID {
		t.Errorf("the session is gone: %+v", b.ses)
	}
	scribe.standby.Store(true)
	b.gone() // another registry writes now
	h.dialAndSay(jute.ConnectRequest{}).gone()
	began := time.Now()
	c := h.dialAndSay(jute.ConnectRequest{})
	await(t, "a client waits for a writer", func() bool { return len(h.connections()) == 1 })
	scribe.standby.Store(false) // this one, after a moment
	c.next()
	if waited := time.Since(began); waited > takeOverGrace {
		t.Errorf("the client had to wait for %v", waited)
	}
}

func (h *house) dialAndSay(q jute.ConnectRequest) *wireClient {
	w := h.dial()
	w.write(jute.Frame(q.Encode))
	return w
}

// Sessions are facts: they outlive the server, and every server of the log knows them.
func TestSessionsOutliveTheServer(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { b.Close() })
	h, _ := writableOn(t, Config{}, b)
	a := h.connect(jute.ConnectRequest{TimeoutMS: 5000})
	a.ask(1, jute.OpCreate, creating("/e", 1))
	made, _ := a.reply(1)
	other, _ := writableOn(t, Config{}, b)
	q := jute.ConnectRequest{SessionID: a.ses.SessionID, Password: a.ses.Password, LastZxidSeen: made.Zxid}
	c := other.connect(q)
	if c.ses.SessionID != a.ses.SessionID || c.ses.TimeoutMS != 5000 {
		t.Fatalf("at another server: %+v", c.ses)
	}
	h.stop()
	a.gone()
	h, _ = writableOn(t, Config{}, b)
	if c = h.connect(q); c.ses.SessionID != a.ses.SessionID {
		t.Fatalf("after a restart: %+v", c.ses)
	}
	c.ask(1, jute.OpGetEphemerals, (&jute.Path{}).Encode)
	if _, r := c.reply(1); fmt.Sprint(r.Strings()) != "[/e]" {
		t.Error("the ephemeral is not the session's any more")
	}
	wrong := q
	wrong.Password = make([]byte, 16)
	if w := h.connect(wrong); w.ses.SessionID != 0 || w.ses.TimeoutMS != 0 {
		t.Errorf("with a wrong password: %+v", w.ses)
	}
	q.LastZxidSeen = 1 << 40
	h.dialAndSay(q).gone() // it has seen what this server has not
}

func TestExpiryTakesEphemeralsAway(t *testing.T) {
	h, _ := writable(t, Config{MinSessionTimeout: 50 * time.Millisecond})
	watcher := h.connect(jute.ConnectRequest{TimeoutMS: 40_000})
	a := h.connect(jute.ConnectRequest{TimeoutMS: 50})
	a.ask(1, jute.OpCreate, creating("/e", 1))
	a.code(1, jute.OK)
	watcher.ask(1, jute.OpGetData, on("/e", true))
	watcher.code(1, jute.OK)
	watcher.notice(znode.Deleted, "/e")
	a.gone()
	if w := h.connect(jute.ConnectRequest{SessionID: a.ses.SessionID, Password: a.ses.Password}); w.ses.SessionID != 0 {
		t.Errorf("an expired session came back: %+v", w.ses)
	}
	b := h.connect(jute.ConnectRequest{TimeoutMS: 40_000})
	b.ask(1, jute.OpCreate, creating("/e", 1))
	b.code(1, jute.OK)
	watcher.ask(2, jute.OpExists, on("/e", true))
	watcher.code(2, jute.OK)
	b.ask(2, jute.OpCloseSession)
	b.code(2, jute.OK)
	b.gone()
	watcher.notice(znode.Deleted, "/e")
}

func TestPersistentWatches(t *testing.T) {
	h, _ := writable(t, Config{})
	w := h.connect(jute.ConnectRequest{})
	set := func(xid int32, op jute.Op, path string, mode int32, want jute.Code) {
		t.Helper()
		w.ask(xid, op, (&jute.PathMode{Path: path, Mode: mode}).Encode)
		w.code(xid, want)
	}
	set(1, jute.OpAddWatch, "/a", 1, jute.OK)   // recursive
	set(2, jute.OpAddWatch, "/a/b", 0, jute.OK) // persistent
	set(3, jute.OpCheckWatches, "/a", 5, jute.OK)
	set(4, jute.OpCheckWatches, "/a", 2, jute.NoWatcher)
	w.ask(5, jute.OpExists, on("/a/b", true)) // and a one-shot one beside it
	w.code(5, jute.NoNode)
	for i, path := range []string{"/a", "/a/b", "/a/b/c"} {
		w.ask(int32(10+i), jute.OpCreate, creating(path, 0))
		w.notice(znode.Created, path)
		if i == 2 {
			w.notice(znode.ChildrenChanged, "/a/b")
		}
		w.code(int32(10+i), jute.OK)
	}
	w.ask(20, jute.OpSetData, setting("/a/b", "y"))
	w.notice(znode.DataChanged, "/a/b") // once, however many watches see it
	w.code(20, jute.OK)
	set(21, jute.OpRemoveWatches, "/a", 5, jute.OK)
	set(22, jute.OpRemoveWatches, "/a", 5, jute.NoWatcher)
	w.ask(23, jute.OpDelete, (&jute.PathVersion{Path: "/a/b/c", Version: -1}).Encode)
	w.notice(znode.ChildrenChanged, "/a/b")
	w.code(23, jute.OK)
	set(24, jute.OpRemoveWatches, "/a/b", 3, jute.OK)
	w.ask(25, jute.OpSetWatches2, func(b *jute.Writer) {
		(&jute.SetWatches{RelativeZxid: 1, Persistent: []string{"/a"}, PersistentRecur: []string{"/a/b"}}).Encode(b, true)
	})
	w.code(25, jute.OK)
	w.ask(26, jute.OpCreate, creating("/a/b/d", 0))
	w.notice(znode.Created, "/a/b/d")
	w.code(26, jute.OK)
	w.nc.Close()
	h.idle()
}

// Who may not read a node does not learn of its changes either.
func TestWatchesRespectACLs(t *testing.T) {
	h, _ := writable(t, Config{})
	owner, other := h.connect(jute.ConnectRequest{}), h.connect(jute.ConnectRequest{})
	owner.ask(jute.XidAuth, jute.OpAuth, (&jute.AuthPacket{Scheme: "digest", Auth: []byte("u:p")}).Encode)
	owner.code(jute.XidAuth, jute.OK)
	for _, w := range []*wireClient{owner, other} {
		w.ask(1, jute.OpAddWatch, (&jute.PathMode{Path: "/s", Mode: 1}).Encode)
		w.code(1, jute.OK)
	}
	owner.ask(2, jute.OpCreate, func(w *jute.Writer) {
		(&jute.CreateRequest{Path: "/s", ACL: []jute.ACL{{Perms: 31, Scheme: "auth"}}}).Encode(w, false)
	})
	owner.notice(znode.Created, "/s")
	owner.code(2, jute.OK)
	other.ask(2, jute.OpGetData, on("/s", false))
	other.code(2, jute.NoAuth) // and nothing came before
	owner.ask(3, jute.OpGetACL, (&jute.Path{Path: "/s"}).Encode)
	if _, r := owner.reply(3); fmt.Sprint(jute.DecodeACLs(r)) != "[{31 digest "+Digest("u:p").Id+"}]" {
		t.Error("the list of auth is not the identity")
	}
	owner.ask(4, jute.OpWhoAmI)
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
	ca := mtlstest.NewAuthority(t)
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
	w := &wireClient{t: t, nc: nc}
	w.write(jute.Frame((&jute.ConnectRequest{}).Encode))
	if w.ses.Decode(w.next()); w.ses.SessionID == 0 {
		t.Errorf("%+v", w.ses)
	}
}

func TestConnectionsPerAddress(t *testing.T) {
	h := open(t, Config{MaxConns: 10, MaxConnsPerIP: 2})
	a := h.connect(jute.ConnectRequest{})
	h.connect(jute.ConnectRequest{})
	h.dial().gone()
	a.nc.Close()
	await(t, "room", func() bool { return len(h.connections()) == 1 })
	h.connect(jute.ConnectRequest{})
}

func TestWordsAreWhitelisted(t *testing.T) {
	say := func(h *house, word string) string {
		w := h.dial()
		w.write([]byte(word))
		var b strings.Builder
		buf := make([]byte, 4096)
		for {
			n, err := w.nc.Read(buf)
			if b.Write(buf[:n]); err != nil {
				return b.String()
			}
		}
	}
	h, _ := writable(t, Config{Words: []string{"*"}})
	c := h.connect(jute.ConnectRequest{})
	c.ask(1, jute.OpCreate, creating("/e", 1))
	c.code(1, jute.OK)
	c.ask(2, jute.OpExists, on("/e", true))
	c.code(2, jute.OK)
	id := hex(c.ses.SessionID)
	for word, want := range map[string]string{
		"ruok": "imok", "isro": "rw", "conf": "maxSessionTimeout=40000\n", "dirs": "datadir_size: ", "srst": "Server stats reset.\n", "crst": "Connection stats reset.\n",
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
	c.ask(3, jute.OpExists, on("/e", false))
	c.code(3, jute.OK)
	mntr := say(h, "mntr")
	for _, field := range []string{"uptime", "last_client_response_size", "min_client_response_size", "max_client_response_size", "open_file_descriptor_count", "max_file_descriptor_count"} {
		if _, value, ok := strings.Cut(mntr, "zk_"+field+"\t"); !ok || strings.HasPrefix(value, "-") {
			t.Errorf("%s is not told: %q", field, mntr)
		}
	}
	if got := say(h, "nope"); got != "" { // a length that no frame has
		t.Errorf("nope: %q", got)
	}
	few := open(t, Config{Words: []string{"ruok"}})
	if got := say(few, "srvr"); !strings.Contains(got, "not in the whitelist") {
		t.Errorf("srvr: %q", got)
	}
	if got := say(few, "ruok"); got != "imok" {
		t.Errorf("ruok: %q", got)
	}
}
