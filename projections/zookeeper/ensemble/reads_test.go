package ensemble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// hangUp, as an answer, ends the connection.
var hangUp = []byte("hang up")

// scripted is a server that grants sessions as it is told to, and answers each request but
// pings by answer; nil: not at all.
func scripted(t *testing.T, granted wire.ConnectResponse, answer func(q wire.RequestHeader, path string) []byte) Config {
	t.Helper()
	addr := mute(t, func(c net.Conn) {
		if _, err := wire.ReadFrame(c, nil, 1<<20); err != nil {
			return
		}
		_, _ = c.Write(wire.Frame(granted.Encode))
		for {
			b, err := wire.ReadFrame(c, nil, 1<<20)
			if err != nil {
				return
			}
			var q wire.RequestHeader
			r := wire.NewReader(b)
			q.Decode(r)
			path := ""
			if q.Op != wire.OpPing && q.Op != wire.OpAuth && q.Op != wire.OpCloseSession {
				path = r.String()
			}
			out := answered(wire.XidPing, wire.OK)
			if q.Op != wire.OpPing {
				out = answer(q, path)
			}
			if string(out) == string(hangUp) {
				return
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
	return Config{Servers: []string{addr}, BZID: "test", Session: 20 * time.Second}.withDefaults()
}

var session7 = wire.ConnectResponse{TimeoutMS: 20_000, SessionID: 7, Password: make([]byte, 16)}

func answered(xid int32, code wire.Code, body ...func(*wire.Writer)) []byte {
	h := wire.ReplyHeader{Xid: xid, Zxid: 77, Err: code}
	return wire.Frame(append([]func(*wire.Writer){h.Encode}, body...)...)
}

func reads(t *testing.T, cfg Config) *readConn {
	t.Helper()
	w, err := dialReads(t.Context(), &cfg, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// Every question to the ensemble has answers that say something of the node, and others that
// end the attempt with what was asked and the code.
func TestWhatTheEnsembleAnswers(t *testing.T) {
	var says atomic.Int32 // a code
	cfg := scripted(t, session7, func(q wire.RequestHeader, path string) []byte {
		code := wire.Code(says.Load())
		if code != wire.OK {
			return answered(q.Xid, code)
		}
		st := wire.Stat{Czxid: 3, Mzxid: 4, Version: 5, Aversion: 6, NumChildren: 1}
		switch q.Op {
		case wire.OpGetData:
			return answered(q.Xid, code, func(b *wire.Writer) { b.Buffer([]byte(path)) }, st.Encode)
		case wire.OpGetChildren:
			var names []string
			if path == "/a" {
				names = []string{"b", "c"}
			}
			return answered(q.Xid, code, func(b *wire.Writer) { b.Strings(names) })
		}
		return answered(q.Xid, code)
	})
	asks := map[string]func(*readConn) (string, error){
		"watch": func(w *readConn) (string, error) { return "", w.watch(t.Context(), []string{"/a", "/b"}) },
		"barrier": func(w *readConn) (string, error) {
			zxid, err := w.barrier(t.Context(), "/a")
			return fmt.Sprint(zxid), err
		},
		"get": func(w *readConn) (string, error) {
			got, err := w.get(t.Context(), []string{"/a"})
			if err != nil || got[0] == nil {
				return "", err
			}
			n := got[0]
			return fmt.Sprintf("%s %d %d %d %d %d %v %v", n.data, n.czxid, n.mzxid, n.version, n.aversion, n.children, n.opaque, n.large), nil
		},
		"acls": func(w *readConn) (string, error) {
			n := &remoteNode{aversion: -1}
			err := w.acls(t.Context(), []string{"/a"}, []*remoteNode{n})
			return fmt.Sprint(n.acl != nil, n.aversion), err
		},
		"below": func(w *readConn) (string, error) {
			got, err := w.below(t.Context(), "/a")
			return strings.Join(got, " "), err
		},
	}
	for _, tc := range []struct {
		ask  string
		code wire.Code
		want string // "!": the error
	}{
		{"watch", wire.OK, ""},
		{"watch", wire.NoAuth, "!watch [/a /b]: refused with code -102"},
		{"watch", wire.Unimplemented, "!" + errNoWatch.Error()},
		{"barrier", wire.OK, "77"},
		{"barrier", wire.NoNode, "!sync: code -101"},
		{"get", wire.OK, "/a 3 4 5 6 1 false false"},
		{"get", wire.NoNode, ""},
		{"get", wire.NoAuth, " 0 0 0 0 0 true false"},
		{"get", wire.SystemError, "!read /a: code -1"},
		{"acls", wire.NoAuth, "false -1"},
		{"acls", wire.NoNode, "false -1"},
		{"below", wire.OK, "/a /a/b /a/c"},
		{"below", wire.NoNode, ""},
		{"below", wire.NoAuth, "/a"},
		{"below", wire.SystemError, "!list /a: code -1"},
	} {
		t.Run(fmt.Sprint(tc.ask, tc.code), func(t *testing.T) {
			says.Store(int32(tc.code))
			got, err := asks[tc.ask](reads(t, cfg))
			if err != nil {
				got = "!" + strings.TrimPrefix(err.Error(), "the connection for reads: ")
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// An answer that belongs to no question, or does not hold what it should, ends the connection
// with the reason; whoever has asked hears it.
func TestAnswersThatDoNotFit(t *testing.T) {
	for want, answer := range map[string]func(q wire.RequestHeader) []byte{
		"an answer to request 99 where 1 was next": func(wire.RequestHeader) []byte { return answered(99, wire.OK) },
		"an answer to request 1000, which nobody asked": func(q wire.RequestHeader) []byte {
			return slices.Concat(answered(q.Xid, wire.NoNode), answered(1000, wire.OK))
		},
		"malformed": func(wire.RequestHeader) []byte { return answered(wire.XidNotification, wire.OK) },
	} {
		w := reads(t, scripted(t, session7, func(q wire.RequestHeader, _ string) []byte { return answer(q) }))
		_, err := w.get(t.Context(), []string{"/a"})
		wait.Closed(t, "its end", w.done)
		if err = errors.Join(err, w.err); !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A server is used once it has granted a session and taken the identity; else the reason is told.
func TestServersThatGrantNothing(t *testing.T) {
	for want, granted := range map[string]wire.ConnectResponse{
		"grants no session":        {TimeoutMS: 20_000, Password: make([]byte, 16)},
		"show the digest identity": session7,
		"grants no session ":       {SessionID: 7, Password: make([]byte, 16)},
	} {
		cfg := scripted(t, granted, func(q wire.RequestHeader, _ string) []byte {
			if q.Op == wire.OpAuth {
				return answered(q.Xid, wire.AuthFailed)
			}
			return nil
		})
		cfg.Auth = []Auth{{"digest", []byte("a:b")}}
		if w, err := dialReads(t.Context(), &cfg, func(string) {}); err == nil {
			w.close()
			t.Errorf("nobody says that it %s", want)
		} else if !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// ending has its context end once it has read what a server grants.
type ending struct {
	net.Conn
	end    func()
	closed chan struct{}
}

func (c *ending) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.end()
	<-c.closed // by whoever watches the context
	return n, err
}

func (c *ending) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return c.Conn.Close()
}

// A connection whose attempt was given up meanwhile is no connection, also where the server has
// just granted a session.
func TestAnAttemptThatWasGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := scripted(t, session7, func(wire.RequestHeader, string) []byte { return nil })
	cfg.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
		c, err := net.DialTimeout(network, addr, timeout)
		return &ending{Conn: c, end: cancel, closed: make(chan struct{})}, err
	}
	w, err := dialReads(ctx, &cfg, func(string) {})
	if err == nil {
		w.close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Reads find the server that answers, whichever that is; nobody is asked once the attempt is over.
func TestServersForReads(t *testing.T) {
	cfg := scripted(t, session7, func(q wire.RequestHeader, _ string) []byte { return answered(q.Xid, wire.OK) })
	cfg.Servers = append(cfg.Servers, "gone:1", "away:1")
	tried, alive := 0, cfg.Servers[0]
	cfg.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
		if tried++; addr != alive {
			return nil, errors.New("no route to " + addr)
		}
		return net.DialTimeout(network, addr, timeout)
	}
	for range 20 { // in an order of chance
		reads(t, cfg).close()
	}
	cfg.Servers = cfg.Servers[1:]
	if _, err := dialReads(t.Context(), &cfg, func(string) {}); err == nil || !strings.Contains(err.Error(), "no route to gone:1") || !strings.Contains(err.Error(), "no route to away:1") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tried = 0
	if _, err := dialReads(ctx, &cfg, func(string) {}); err == nil || tried != 1 {
		t.Errorf("%d were asked, %v", tried, err)
	}
}

// multiDone answers a multi of the mark alone.
func multiDone(b *wire.Writer) {
	b.Int32(int32(wire.OpSetData))
	b.Bool(false)
	b.Int32(0)
	st := wire.Stat{Version: 4, Mzxid: 88}
	st.Encode(b)
	b.Int32(-1)
	b.Bool(true)
	b.Int32(-1)
}

// A list that may not be set is tried again later, and holds up no other one; without a session
// nothing is.
func TestListsThatAreNotSet(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	silent := false
	paths := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(asked)
	}
	cfg := scripted(t, session7, func(q wire.RequestHeader, path string) []byte {
		mu.Lock()
		defer mu.Unlock()
		switch q.Op {
		case wire.OpMulti:
			return answered(q.Xid, wire.OK, multiDone)
		case wire.OpSetACL:
			asked = append(asked, path)
			if silent {
				return nil
			}
			if path == "/demo/closed" {
				return answered(q.Xid, wire.NoAuth)
			}
			return answered(q.Xid, wire.OK, (&wire.Stat{}).Encode)
		}
		return answered(q.Xid, wire.OK)
	})
	s, err := openSession(t.Context(), &cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.leave()
	r := ofTerm(t, marked(10, 100), nil)
	r.s, r.kept = s, map[string]int32{"/demo/refused": 1}
	lists := []relist{{"/demo/closed", everybody(1), 0, 1}, {"/demo/once", everybody(1), 0, 1}, {"/demo/twice", everybody(1), 1, 3}, {"/demo/back", everybody(1), 3, 2}, {"/demo/refused", everybody(1), 1, 1}}
	if err := r.relistAll(t.Context(), lists); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/demo/closed", "/demo/once", "/demo/twice", "/demo/twice", "/demo/back", "/demo/refused"}; !slices.Equal(paths(), want) {
		t.Errorf("%q, want %q", paths(), want)
	}
	if _, later := r.later["/demo/closed"]; !later || len(r.later) != 1 || len(r.kept) != 1 || r.kept["/demo/refused"] != 2 {
		t.Errorf("later %v, refused ones %v", r.later, r.kept)
	}
	mu.Lock()
	asked, silent = nil, true
	mu.Unlock()
	clear(r.later)
	s.timeout = 100 * time.Millisecond
	if err := r.relistAll(t.Context(), lists); !errors.Is(err, errLost) || len(r.later) != 0 || len(paths()) != 1 {
		t.Errorf("%v, later %v, asked %q", err, r.later, paths())
	}
}

// What an event cannot hold is large, and no byte less.
func TestWhatIsLarge(t *testing.T) {
	w := reads(t, scripted(t, session7, func(q wire.RequestHeader, path string) []byte {
		n := maxImport
		if path == "/larger" {
			n++
		}
		return answered(q.Xid, wire.OK, func(b *wire.Writer) { b.Buffer(make([]byte, n)) }, (&wire.Stat{}).Encode)
	}))
	got, err := w.get(t.Context(), []string{"/large", "/larger"})
	if err != nil || got[0].large || !got[1].large {
		t.Errorf("%v", err)
	}
}

// Imports that cannot be made hold the mark up, whose list of its own zxids grows: past a bound
// they are given up, and the mark moves again.
func TestImportsThatWaitForVeryLong(t *testing.T) {
	w := reads(t, scripted(t, session7, func(q wire.RequestHeader, _ string) []byte { return answered(q.Xid, wire.OK, (&wire.Stat{}).Encode) }))
	for _, tc := range []struct{ own, retry, left int }{{maxOwn, 1, 1}, {maxOwn + 1, 1, 0}, {maxOwn + 1, 0, 0}} {
		p := marked(10, 50)
		p.Own = nil
		for i := range tc.own {
			p.own(1000 + 2*int64(i))
		}
		r := ofTerm(t, p, w)
		var out bytes.Buffer
		r.logger = slog.New(slog.NewTextHandler(&out, nil))
		for i := range tc.retry {
			r.retry[fmt.Sprint("/demo/", i)] = 60
		}
		if err := r.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(out.String(), "gives up imports"); len(r.retry) != tc.left || said != (tc.left < tc.retry) {
			t.Errorf("%d runs and %d imports: %d are left, said: %v", tc.own, tc.retry, len(r.retry), said)
		}
		if want := map[int]int64{0: 77, 1: 59}[tc.retry]; r.Zxid != want || r.stale {
			t.Errorf("looked at up to %d, want %d; stale %v", r.Zxid, want, r.stale)
		}
	}
}
