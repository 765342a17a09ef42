package ensemble

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// The library gets every server by its name, in turn, and is told to wait once all have
// been tried in vain.
func TestServersInTurn(t *testing.T) {
	n := &names{}
	all := []string{"zk1:2281", "zk2:2281", "zk3:2281"}
	if err := n.Init(all); err != nil || n.Len() != 3 {
		t.Fatalf("%d servers, %v", n.Len(), err)
	}
	round := func() (got []string, waits []bool) {
		for range 3 {
			s, wait := n.Next()
			got, waits = append(got, s), append(waits, wait)
		}
		return got, waits
	}
	first, waits := round()
	if slices.Contains(waits, true) {
		t.Errorf("it waits before all have been tried: %v", waits)
	}
	if _, waits = round(); !slices.Equal(waits, []bool{true, false, false}) {
		t.Errorf("the second time round it waits %v", waits)
	}
	n.Connected()
	again, waits := round()
	if slices.Contains(waits, true) || !slices.Equal(first, again) {
		t.Errorf("%v after %v, waiting %v", again, first, waits)
	}
	slices.Sort(again)
	if !slices.Equal(again, all) {
		t.Errorf("the servers are %v", again)
	}
}

// mute takes connections and says nothing, but what it is told to say at first.
func mute(t *testing.T, greet func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				greet(c)
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	return ln.Addr().String()
}

// A member that takes connections and does not answer is left soon, though the library
// alone would wait for several sessions' time.
func TestSilentMember(t *testing.T) {
	addr := mute(t, func(net.Conn) {})
	cfg := Config{Servers: []string{addr}, BZID: "test", Session: 1200 * time.Millisecond}.withDefaults()
	c, err := cfg.Dial("tcp", addr, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := &prompt{Conn: c, within: 20 * time.Millisecond}
	if err := p.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first answer is awaited: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	if s, err := openSession(ctx, &cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Errorf("a session %x of nobody", s.id)
	}
}

// A server that falls silent in the middle of a question is given up within half of the
// session's time-out, however often it is pinged.
func TestSilentReads(t *testing.T) {
	const timeout = 400 * time.Millisecond
	addr := mute(t, func(c net.Conn) {
		if _, err := wire.ReadFrame(c, nil, 1<<20); err != nil {
			return
		}
		answer := wire.ConnectResponse{TimeoutMS: int32(timeout.Milliseconds()), SessionID: 7, Password: make([]byte, 16)}
		_, _ = c.Write(wire.Frame(answer.Encode))
	})
	cfg := Config{Servers: []string{addr}, BZID: "test", Session: timeout}.withDefaults()
	began := time.Now() // of its silence, or a little before
	w, err := dialReads(t.Context(), &cfg, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	if _, err := w.get(ctx, []string{"/a"}); err == nil || ctx.Err() != nil {
		t.Errorf("nobody has answered: %v", err)
	}
	if took := time.Since(began); took < timeout/4 {
		t.Errorf("given up after %v", took)
	}
}

// timed notes the deadlines that it is given.
type timed struct {
	net.Conn
	reads, both []time.Time
	closed      bool
}

func (c *timed) SetReadDeadline(at time.Time) error { c.reads = append(c.reads, at); return nil }
func (c *timed) SetDeadline(at time.Time) error {
	c.both = append(c.both, at)
	return c.Conn.SetDeadline(at)
}
func (c *timed) Close() error { c.closed = true; return c.Conn.Close() }

// The first deadline of a read is cut short, and no other; none is none.
func TestTheFirstAnswerAlone(t *testing.T) {
	c := &timed{}
	p := &prompt{Conn: c, within: time.Minute}
	later, soon := time.Now().Add(time.Hour), time.Now().Add(time.Second)
	for _, at := range []time.Time{{}, later, later, soon, {}} {
		if err := p.SetReadDeadline(at); err != nil {
			t.Fatal(err)
		}
	}
	cut := c.reads[1]
	if cut.Before(time.Now().Add(30*time.Second)) || cut.After(time.Now().Add(time.Minute)) {
		t.Errorf("the first answer is awaited until %v", cut)
	}
	if want := []time.Time{{}, cut, later, soon, {}}; !slices.Equal(c.reads, want) {
		t.Errorf("%v, want %v", c.reads, want)
	}
	c = &timed{}
	if err := (&prompt{Conn: c, within: time.Minute}).SetReadDeadline(soon); err != nil || !c.reads[0].Equal(soon) {
		t.Errorf("an earlier deadline became %v, %v", c.reads, err)
	}
}

// A connection to the secure port is one to the server of that name, without a deadline of its
// own once it stands; another server's is closed, and the address is named.
func TestSecure(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	at := srv.Listener.Addr().String()
	trusted := srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	dial := func() *timed {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		return &timed{Conn: c}
	}
	plain := dial()
	if c, err := (&Config{}).secure(plain, at); c != net.Conn(plain) || err != nil || plain.closed {
		t.Errorf("in the clear: %v, %v", c, err)
	}
	_ = plain.Close()
	under := dial()
	c, err := (&Config{TLS: &tls.Config{RootCAs: trusted}}).secure(under, at)
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := c.(*tls.Conn); !ok || !s.ConnectionState().HandshakeComplete {
		t.Errorf("%T", c)
	}
	if n := len(under.both); n != 2 || under.both[0].IsZero() || !under.both[1].IsZero() {
		t.Errorf("deadlines %v", under.both)
	}
	_ = c.Close()
	for what, addr := range map[string]string{"another name": "zk.elsewhere:2281", "no address": "nowhere"} {
		under := dial()
		if c, err := (&Config{TLS: &tls.Config{RootCAs: trusted}}).secure(under, addr); err == nil || c != nil || !under.closed || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v, %v, closed %v", what, c, err, under.closed)
		}
	}
}

// A session whose requests find nobody while reads do is given up, and another one takes over.
func TestASessionThatFindsNobody(t *testing.T) {
	for name, sync := range map[string][]byte{"no answer": nil, "a server that hangs up": hangUp} {
		t.Run(name, func(t *testing.T) {
			cfg := scripted(t, session7, func(q wire.RequestHeader, _ string) []byte {
				if q.Op == wire.OpSync {
					return sync
				}
				return answered(q.Xid, wire.OK)
			})
			s, err := openSession(t.Context(), &cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer s.leave()
			m := idle(t, cfg)
			m.cfg.Session = 300 * time.Millisecond
			if err := m.leadTerm(t.Context(), s); !errors.Is(err, errLost) {
				t.Errorf("%v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			if err := m.leadTerm(ctx, s); err == nil {
				t.Error("a term that was ended has no error")
			}
		})
	}
}

// Servers that take connections and grant nothing end no session that comes back in time.
func TestASessionThatComesBack(t *testing.T) {
	var granting atomic.Int64 // the session's number; 0: connections are closed
	granting.Store(7)
	var open atomic.Pointer[net.Conn]
	tried := make(chan struct{}, 100)
	addr := mute(t, func(c net.Conn) {
		if _, err := wire.ReadFrame(c, nil, 1<<20); err != nil {
			return
		}
		id := granting.Load()
		if id == 0 {
			_ = c.Close()
			tried <- struct{}{}
			return
		}
		open.Store(&c)
		granted := wire.ConnectResponse{TimeoutMS: 60_000, SessionID: id, Password: make([]byte, 16)}
		_, _ = c.Write(wire.Frame(granted.Encode))
	})
	cfg := Config{Servers: []string{addr, addr, addr}, BZID: "test", Session: time.Minute}.withDefaults()
	s, err := openSession(t.Context(), &cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.leave()
	s.mu.Lock()
	s.timeout = wait.Patience // none of the timers may end while this test looks
	s.mu.Unlock()
	granting.Store(0)
	_ = (*open.Load()).Close()
	for range 3 {
		<-tried
	}
	s.mu.Lock()
	grace := s.grace
	s.mu.Unlock()
	if grace == nil {
		t.Fatal("nothing ends a session that nobody resumes")
	}
	granting.Store(7)
	wait.For(t, "the session", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.grace == nil
	})
	if grace.Stop() {
		t.Error("the session still ends, though it was resumed")
	}
	granting.Store(8)
	_ = (*open.Load()).Close()
	wait.Closed(t, "the end of a session in whose place another one is granted", s.lost)
}
