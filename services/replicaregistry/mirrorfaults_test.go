package replicaregistry_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// wan stands between a mirror and its ensemble, and can be cut or stall.
type wan struct {
	addr  string
	to    string
	ln    net.Listener
	mu    sync.Mutex
	open  []net.Conn
	pass  *sync.Cond    // broadcast when stalled changes
	dark  bool          // bytes wait, connections stay: a network that drops packets
	down  bool          // nobody is let in
	delay time.Duration // of each read's bytes, on their way; set before anybody connects
	ended sync.WaitGroup
}

func newWAN(t *testing.T, to string) *wan {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wan{addr: ln.Addr().String(), to: to, ln: ln}
	w.pass = sync.NewCond(&w.mu)
	w.ended.Go(w.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		w.cut()
		w.set(false, false)
		w.ended.Wait()
	})
	return w
}

func (w *wan) accept() {
	for {
		a, err := w.ln.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", w.to)
		w.mu.Lock()
		if err != nil || w.down {
			w.mu.Unlock()
			_ = a.Close()
			if b != nil {
				_ = b.Close()
			}
			continue
		}
		w.open = append(w.open, a, b)
		w.mu.Unlock()
		w.ended.Go(func() { w.copy(a, b) })
		w.ended.Go(func() { w.copy(b, a) })
	}
}

func (w *wan) copy(to, from net.Conn) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		for w.dark {
			w.pass.Wait()
		}
		w.mu.Unlock()
		if w.delay > 0 {
			<-time.After(w.delay)
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err != io.EOF {
				return
			}
			return
		}
	}
}

func (w *wan) set(dark, down bool) {
	w.mu.Lock()
	w.dark, w.down = dark, down
	w.pass.Broadcast()
	w.mu.Unlock()
}

func (w *wan) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		_ = c.Close()
	}
	w.open = nil
}

// The library has lost sessions over mere reconnects (samuel/go-zookeeper #133) and
// watches without a word (#83, go-zookeeper/zk #83): the mirror's connections are cut
// again and again; its session and its ephemerals stay, and no foreign write is missed.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	net := newWAN(t, ensemble.Addr)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, net.addr, nil)
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	put(t, there, "/test/free/n", "", 0)
	same(t, "the beginning", here, there, "")
	const node = "/test/service/m/ps:0/0"
	_, before, err := there.Exists(node)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		net.cut()
		data := fmt.Sprint("round ", i)
		if _, err := there.Set("/test/free/n", []byte(data), -1); err != nil {
			t.Fatal(err)
		}
		put(t, there, fmt.Sprint("/test/free/new-", i), "", 0)
		wait.Seen(t, data, func() (string, bool) {
			got, _, err := here.Get("/test/free/n")
			if err != nil {
				t.Fatal(err)
			}
			return string(got), string(got) == data
		})
		same(t, data, here, there, "")
	}
	if _, st, err := there.Exists(node); err != nil || st.EphemeralOwner != before.EphemeralOwner || st.Czxid != before.Czxid {
		t.Errorf("the mirror's node is %+v, it was %+v: %v", st, before, err)
	}
}

// The network goes dark for longer than the session lasts: connections stay open and
// nobody hears anything. What was held is gone over there, and comes back at once with
// another session (samuel/go-zookeeper #25: "session always expired").
func TestSessionExpiresInTheDark(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	net := newWAN(t, ensemble.Addr)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, net.addr, func(c *replicaregistry.Config) { c.Mirror.Session = 2 * time.Second })
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	beatsThere(t, b, there)
	same(t, "the beginning", here, there, "")
	const node = shownNode
	net.set(true, false)
	put(t, there, "/test/free/dark", "while it was dark", 0)
	wait.Seen(t, "the session's end", func() (string, bool) {
		ok, _, err := there.Exists(node)
		return fmt.Sprint(err), err == nil && !ok
	})
	net.set(false, false)
	same(t, "in the light", here, there, "")
	if data, _, err := here.Get("/test/free/dark"); string(data) != "while it was dark" {
		t.Errorf("imported %q, %v", data, err)
	}
	wait.Seen(t, "the mirror's node", func() (string, bool) { // a session as short as this one may end once more
		ok, _, err := there.Exists(node)
		return fmt.Sprint(err), ok
	})
}

// A mirror that was cut off while another one took over writes nothing more: the mark in
// the ensemble refuses it, whatever its own bus says.
func TestFencedMirror(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	wire := newWAN(t, ensemble.Addr)
	old, young := mem.New(), mem.New() // a split: each believes to be alone
	t.Cleanup(func() { _ = old.Close(); _ = young.Close() })
	long := func(c *replicaregistry.Config) { c.Mirror.Session = 10 * time.Second }
	first := startMirrored(t, old, wire.addr, long)
	there := session(t, ensemble.Addr)
	a := session(t, first.ZKAddr())
	put(t, a, "/test/free/n", "first", 0)
	same(t, "the first", a, there, "")
	wire.set(true, false)
	if _, err := a.Set("/test/free/n", []byte("too late"), -1); err != nil {
		t.Fatal(err)
	}
	second := startMirrored(t, young, ensemble.Addr, long)
	b := session(t, second.ZKAddr())
	same(t, "the second, whose log is another one, adopts what is there", b, there, "")
	if data, _, err := b.Get("/test/free/n"); string(data) != "first" {
		t.Errorf("it has %q, %v", data, err)
	}
	wire.set(false, false)
	until := time.Now().Add(1500 * time.Millisecond) // the first one tries
	for time.Now().Before(until) {
		if data, _, err := there.Get("/test/free/n"); err != nil || string(data) == "too late" {
			t.Fatalf("the fenced mirror wrote: %s, %v", data, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// The bus restarts under the mirror: what comes after is mirrored, and imported, as
// before.
func TestMirrorOverNATSRestart(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	nats := oracle.NATSServer(t)
	b, err := jetstream.Connect(t.Context(), jetstream.Config{URL: nats.URL, BZID: controltest.BZID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, ensemble.Addr, nil)
	there := session(t, ensemble.Addr)
	write := func(data string) {
		wait.Seen(t, "a write here: "+data, func() (string, bool) {
			c, ev, err := zk.Connect([]string{s.ZKAddr()}, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(mute{}))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for e := range ev {
				if e.State == zk.StateHasSession {
					break
				}
			}
			_, err = c.Create("/test", nil, 0, zk.WorldACL(zk.PermAll))
			if err == nil || err == zk.ErrNodeExists {
				_, err = c.Create("/test/"+data, []byte(data), 0, zk.WorldACL(zk.PermAll))
			}
			return fmt.Sprint(err), err == nil || err == zk.ErrNodeExists
		})
		wait.Seen(t, "its image: "+data, func() (string, bool) {
			got, _, err := there.Get("/test/" + data)
			return fmt.Sprint(string(got), err), string(got) == data
		})
	}
	write("one")
	nats.Kill()
	put(t, there, "/test/meanwhile", "x", 0)
	nats.Restart(t)
	write("two")
	wait.Seen(t, "the import", func() (string, bool) {
		return "", controltest.Count(t, b, controltest.Of("imported")) > 0
	})
}

type mute struct{}

func (mute) Printf(string, ...any) {}

// The ensemble's nodes are restricted to an identity that the mirror shows: it reads and
// writes them, and others do not.
func TestMirrorShowsItsIdentity(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	file := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(file, []byte("mirror:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startMirrored(t, b, ensemble.Addr, func(c *replicaregistry.Config) { c.Mirror.AuthFile = file })
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	for _, c := range []*zk.Conn{here, there} {
		if err := c.AddAuth("digest", []byte("mirror:secret")); err != nil {
			t.Fatal(err)
		}
	}
	stranger := session(t, ensemble.Addr)
	list := zk.DigestACL(zk.PermAll, "mirror", "secret")
	put(t, here, "/test/ours", "", 0)
	for _, c := range []struct {
		*zk.Conn
		path string
	}{{here, "/test/ours/x"}, {there, "/test/ours/y"}} {
		if _, err := c.Create(c.path, []byte("secret"), 0, list); err != nil {
			for deadline := time.Now().Add(controltest.Patience); err != nil; { // its parent is on the way
				if time.Now().After(deadline) {
					t.Fatal(err)
				}
				_, err = c.Create(c.path, []byte("secret"), 0, list)
			}
		}
	}
	same(t, "secrets", here, there, "")
	if _, err := here.Set("/test/ours/y", []byte("changed"), -1); err != nil {
		t.Fatal(err)
	}
	same(t, "a changed secret", here, there, "")
	outsider := session(t, s.ZKAddr())
	for _, path := range []string{"/test/ours/x", "/test/ours/y"} {
		for _, c := range []*zk.Conn{stranger, outsider} {
			if _, _, err := c.Get(path); err != zk.ErrNoAuth {
				t.Errorf("%s is readable for strangers: %v", path, err)
			}
		}
	}
}

func TestMirrorSettings(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    replicaregistry.ZKMirror
		want string
	}{
		{"no port", replicaregistry.ZKMirror{Servers: []string{"zk1"}}, "--zk-mirror"},
		{"a bridge to nowhere", replicaregistry.ZKMirror{Bridge: true}, "--zk-bridge"},
		{"a relative chroot", replicaregistry.ZKMirror{Servers: []string{"a:1"}, Chroot: "x"}, "--zk-mirror-chroot"},
		{"a chroot with a slash behind it", replicaregistry.ZKMirror{Servers: []string{"a:1"}, Chroot: "/x/"}, "--zk-mirror-chroot"},
		{"ZooKeeper's own", replicaregistry.ZKMirror{Servers: []string{"a:1"}, Roots: []string{"/zookeeper/quota"}}, "--zk-mirror-roots"},
		{"roots that overlap", replicaregistry.ZKMirror{Servers: []string{"a:1"}, Roots: []string{"/a", "/a/b"}}, "overlap"},
		{"certificates and no ensemble", replicaregistry.ZKMirror{TLS: mtls.Files{Cert: "c", Key: "k", CA: "a"}}, "--zk-mirror-tls-cert needs --zk-mirror"},
		{"compared all the time", replicaregistry.ZKMirror{Servers: []string{"a:1"}, Resync: time.Millisecond}, "--zk-mirror-resync"},
		{"a session of a day", replicaregistry.ZKMirror{Servers: []string{"a:1"}, Session: 24 * time.Hour}, "--zk-mirror-session"},
	} {
		cfg := replicaregistry.Config{ZKListen: "127.0.0.1:0", Mirror: tc.c}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	fine := replicaregistry.Config{ZKListen: "127.0.0.1:0", Mirror: replicaregistry.ZKMirror{
		Servers: []string{"a:1", "[::1]:2"}, Bridge: true, Chroot: "/x/y", Roots: []string{"/a", "/ab"}, Session: time.Minute}}
	if err := fine.Validate(); err != nil {
		t.Error(err)
	}
	fine.ZKListen = ""
	if err := fine.Validate(); err == nil {
		t.Error("a mirror without a ZooKeeper port")
	}
	for _, secret := range []string{"", "nobody", ":x", "a:b\nc:d"} {
		file := filepath.Join(t.TempDir(), "auth")
		if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := replicaregistry.Config{ZKListen: "127.0.0.1:0", Mirror: replicaregistry.ZKMirror{Servers: []string{"a:1"}, AuthFile: file}}
		b := mem.New()
		if _, err := replicaregistry.New(cfg, controltest.Env(b)); err == nil || !strings.Contains(err.Error(), "user:password") {
			t.Errorf("%q: %v", secret, err)
		}
		_ = b.Close()
	}
	for _, files := range []mtls.Files{{Cert: "/none/cert"}, {Cert: "/none/cert", Key: "/none/key", CA: "/none/ca"}} {
		cfg := replicaregistry.Config{ZKListen: "127.0.0.1:0", Mirror: replicaregistry.ZKMirror{Servers: []string{"a:1"}, TLS: files}}
		b := mem.New()
		if _, err := replicaregistry.New(cfg, controltest.Env(b)); err == nil || !strings.Contains(err.Error(), "--zk-mirror-tls-cert") {
			t.Errorf("%+v: %v", files, err)
		}
		_ = b.Close()
	}
}
