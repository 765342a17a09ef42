package replicaregistry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/testenv/memdir"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/server"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

var openACL = []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

func (h *harness) client(timeout time.Duration) (*client.Conn, error) {
	return client.Dial(h.ZKAddr(), wire.ConnectRequest{TimeoutMS: int32(timeout.Milliseconds())}, 3*controltest.Patience)
}

func createNode(c *client.Conn, path string, data []byte, flags int32) (wire.Code, error) {
	q := wire.CreateRequest{Path: path, Data: data, ACL: openACL, Flags: flags}
	h, _, err := c.Ask(wire.OpCreate, func(w *wire.Writer) { q.Encode(w, false) })
	return h.Err, err
}

func statNode(c *client.Conn, path string) (st wire.Stat, code wire.Code, err error) {
	h, r, err := c.Ask(wire.OpExists, (&wire.PathWatch{Path: path}).Encode)
	if err == nil && h.Err == wire.OK {
		st.Decode(r)
	}
	return st, h.Err, err
}

// word asks a four-letter word.
func (h *harness) word(w string) string {
	h.t.Helper()
	nc, err := net.Dial("tcp", h.ZKAddr())
	if err != nil {
		h.t.Fatal(err)
	}
	defer nc.Close()
	if _, err := io.WriteString(nc, w); err != nil {
		h.t.Fatal(err)
	}
	b, err := io.ReadAll(nc)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

// figure is one of mntr's.
func (h *harness) figure(name string) (n int) {
	h.t.Helper()
	for line := range strings.Lines(h.word("mntr")) {
		if v, ok := strings.CutPrefix(line, name+"\t"); ok {
			_, _ = fmt.Sscan(v, &n)
		}
	}
	return n
}

// Storms of clients, more than there is room for, each of which leaves a session, an
// ephemeral node and a watch behind, some by closing and most by being cut: the limit
// holds, and when their sessions have expired nothing of a storm is left.
func TestSessionStorm(t *testing.T) {
	const room, crowd = 300, 1000
	const alive = 3 * time.Second // a client that a busy machine forgets for so long has lost its session rightly
	h := openHarness(t, Config{ZK: ZKPort{MaxConns: room, MaxSessions: 100 * crowd, MinSessionTimeout: 300 * time.Millisecond}})
	base := h.figure("zk_znode_count")
	var routines, heap [3]int
	for round := range routines {
		var in, out atomic.Int32
		var all sync.WaitGroup
		for i := range crowd {
			all.Go(func() {
				heard := time.Now()
				c, err := h.client(alive)
				if err != nil {
					out.Add(1)
					return
				}
				defer c.Close()
				in.Add(1)
				path := fmt.Sprintf("/storm-%d-%d", round, i)
				if _, _, err := c.Ask(wire.OpExists, (&wire.PathWatch{Path: path + "-watched", Watch: true}).Encode); err != nil && time.Since(heard) < alive {
					t.Error(err)
				}
				if code, err := createNode(c, path, nil, 1); (err != nil || code != wire.OK) && time.Since(heard) < alive {
					t.Errorf("create: %v %v", code, err)
				}
				if i%4 == 0 {
					_, _, _ = c.Ask(wire.OpCloseSession, nil)
				}
			})
		}
		all.Wait()
		if in.Load() == 0 {
			t.Fatal("nobody came in")
		}
		wait.For(h.t, "the end of the storm's connections", func() bool { return h.figure("zk_num_alive_connections") == 1 })
		wait.For(h.t, "the end of its sessions", func() bool { return h.figure("zk_global_sessions") == 0 })
		if n := h.figure("zk_znode_count"); n != base {
			t.Errorf("%d nodes are left of the storm", n-base)
		}
		if n := h.figure("zk_watch_count"); n != 0 {
			t.Errorf("%d watches are left of the storm", n)
		}
		if round > 0 {
			wait.Seen(h.t, "the storm's goroutines to end", func() (string, bool) {
				n := runtime.NumGoroutine()
				return fmt.Sprint(n, " of ", routines[0]), n <= routines[0]+20
			})
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		routines[round], heap[round] = runtime.NumGoroutine(), int(m.HeapAlloc)
		t.Logf("storm %d: %d came in, %d were turned away; then %d goroutines, %d KiB", round, in.Load(), out.Load(), routines[round], heap[round]>>10)
	}
	if heap[2] > heap[0]+16<<20 {
		t.Errorf("memory grows from storm to storm: %v bytes", heap)
	}
}

// A client that is gone without a word, its connection open for ever as far as anybody
// can tell: its session expires, and with it go the connection, the watches and the
// ephemeral nodes. One that never says who it is does not stay either.
func TestHalfOpenConnections(t *testing.T) {
	h := openHarness(t, Config{ZK: ZKPort{MinSessionTimeout: 300 * time.Millisecond}})
	const n, alive = 20, time.Second
	var silent []*client.Conn
	for i := 0; len(silent) < n; i++ {
		heard := time.Now()
		c, err := h.client(alive)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		code, err := createNode(c, fmt.Sprintf("/silent-%d", i), nil, 1)
		if err == nil {
			_, _, err = c.Ask(wire.OpExists, (&wire.PathWatch{Path: "/watched", Watch: true}).Encode)
		}
		if err == nil && code == wire.OK {
			silent = append(silent, c)
		} else if time.Since(heard) < alive { // else a busy machine has ended its session rightly
			t.Fatal(code, err)
		}
	}
	wait.For(h.t, "the sessions' end", func() bool { return h.figure("zk_global_sessions") == 0 })
	wait.For(h.t, "the connections' end", func() bool { return h.figure("zk_num_alive_connections") == 1 })
	if e, w := h.figure("zk_ephemerals_count"), h.figure("zk_watch_count"); e != 0 || w != 0 {
		t.Errorf("%d ephemerals and %d watches are left", e, w)
	}
	for _, c := range silent {
		if _, _, err := c.Next(); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an expired session's connection: %v", err)
		}
	}
}

// What fits into a frame is stored, what does not ends the connection and changes
// nothing; its session lives on. There is one limit, and conf says which.
func TestOversizedData(t *testing.T) {
	h := openHarness(t, Config{})
	if want := fmt.Sprintf("jute.maxbuffer=%d\n", server.MaxFrame); !strings.Contains(h.word("conf"), want) {
		t.Errorf("conf does not say %q:\n%s", want, h.word("conf"))
	}
	c, err := h.client(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rest := len("/big") + 8 + 12 + 4 + 4 + 4 + 12 + len("worldanyone") + 4 // of a create's frame besides its data
	largest := server.MaxFrame - rest
	if code, err := createNode(c, "/big", make([]byte, largest-100), 0); err != nil || code != wire.OK {
		t.Fatalf("just below the limit: %v %v", code, err)
	}
	code, err := createNode(c, "/more", make([]byte, largest+100), 0)
	if err == nil {
		t.Fatalf("just above the limit: %v", code)
	}
	again, err := client.Dial(h.ZKAddr(), wire.ConnectRequest{TimeoutMS: 10_000, SessionID: c.Session.SessionID, Password: c.Session.Password}, controltest.Patience)
	if err != nil || again.Session.SessionID != c.Session.SessionID {
		t.Fatalf("its session: %+v, %v", again, err)
	}
	defer again.Close()
	if _, code, err := statNode(again, "/more"); err != nil || code != noNode {
		t.Errorf("what was too large: %v %v", code, err)
	}
	if st, _, err := statNode(again, "/big"); err != nil || int(st.DataLength) != largest-100 {
		t.Errorf("what was not: %+v %v", st, err)
	}
}

const noNode wire.Code = -101

// writers write one node after the other, each by a client and session of its own.
type writers struct {
	h             *harness
	acked         [6][]string // paths by writer; read once all have ended
	lost, written atomic.Int32
}

// write writes until ctx ends; its connection may be lost, its session may not.
func (w *writers) write(ctx context.Context, i int) {
	t := w.h.t
	c, err := w.h.client(time.Minute)
	if err != nil {
		t.Error(err)
		return
	}
	first := c.Session
	for n := 0; ctx.Err() == nil; n++ {
		path := fmt.Sprintf("/load-%d-%d", i, n)
		code, err := createNode(c, path, []byte(path), 0)
		switch {
		case err == nil && code == wire.OK:
			w.acked[i] = append(w.acked[i], path)
			w.written.Add(1)
			continue
		case err == nil:
			t.Errorf("%s: code %d", path, code)
			return
		}
		w.lost.Add(1)
		_ = c.Close()
		again, ok := w.resume(ctx, first)
		if !ok {
			return
		}
		if again != nil {
			c = again
		}
	}
	_ = c.Close()
}

// resume dials as clients do, for the same session, until it is answered. The connection
// is nil where ctx ended before; it is not ok where the session has expired.
func (w *writers) resume(ctx context.Context, first wire.ConnectResponse) (c *client.Conn, ok bool) {
	for ctx.Err() == nil {
		again, err := client.Dial(w.h.ZKAddr(), wire.ConnectRequest{TimeoutMS: 60_000, SessionID: first.SessionID, Password: first.Password}, time.Second)
		if err != nil {
			<-time.After(20 * time.Millisecond)
			continue
		}
		if again.Session.SessionID != first.SessionID {
			w.h.t.Errorf("session %x has expired", first.SessionID)
			return nil, false
		}
		if err := again.Deadline(3 * controltest.Patience); err != nil {
			w.h.t.Error(err)
		}
		return again, true
	}
	return nil, true
}

// progress waits for further writes.
func (w *writers) progress() {
	from := w.written.Load()
	wait.For(w.h.t, "further writes", func() bool { return w.written.Load() > from+100 || w.h.t.Failed() })
}

// are compares the tree with what was acknowledged, and counts that.
func (w *writers) are(s view.State) (n int) {
	for i := range w.acked {
		for _, path := range w.acked[i] {
			n++
			if data, st, ok := s.Get(path); !ok || string(data) != path || st.Version != 0 {
				w.h.t.Errorf("%s was acknowledged; it is there: %v, %q, version %d", path, ok, data, st.Version)
			}
		}
	}
	return n
}

// The log's server goes away and comes back, three times, under a load of writes. What
// was acknowledged is there, once; clients lose at most their connection and go on with
// the session they had.
func TestLogRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	dir := memdir.New(t)
	srv, err := natsserver.Start(natsserver.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(srv.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	var at int
	if _, err := fmt.Sscan(port, &at); err != nil {
		t.Fatal(err)
	}
	h := harnessAt(t, Config{ZK: ZKPort{MaxSessionTimeout: time.Minute}}, jetstream.Config{URL: srv.URL()})
	h.nats = srv
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w := &writers{h: h}
	var all sync.WaitGroup
	for i := range w.acked {
		all.Go(func() { w.write(ctx, i) })
	}
	for range 3 {
		w.progress()
		if err := h.nats.Close(); err != nil {
			t.Fatal(err)
		}
		if h.nats, err = natsserver.Start(natsserver.Config{Dir: dir, Port: at}); err != nil {
			t.Fatal(err)
		}
	}
	w.progress()
	stop()
	all.Wait()
	n := 0
	h.znode.Read(func(s view.State) { n = w.are(s) })
	t.Logf("%d writes acknowledged, none lost; %d connections lost", n, w.lost.Load())
	h.stop()
	if err := h.bus.Close(); err != nil {
		t.Error(err)
	}
	if err := h.nats.Close(); err != nil {
		t.Error(err)
	}
}
