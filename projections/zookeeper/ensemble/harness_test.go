package ensemble_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
	"github.com/monolith-go/monolith/projections/zookeeper/server"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/writer"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	namespace = "test"
	chroot    = "/real" // our own port shows past trees below /@, where the mark would lie without one
	mark      = chroot + "/@monolith/" + namespace
)

// side is a ZooKeeper port of our own with a log of its own.
type side struct {
	*mem.Bus
	addr   string
	tree   *follow.Follower[view.State]
	writer *writer.Writer
}

// open starts one whose sessions may be short.
func open(t *testing.T, bzid string) *side {
	t.Helper()
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	tree := follow.New(b.Log(), registry.Znode, follow.Options{})
	w := writer.New(writer.Config{BZID: bzid, Source: "test", Bus: b, Log: slog.New(slog.DiscardHandler), Now: time.Now, Answer: time.Second, Health: health.New()}, tree)
	s := server.New(server.Config{Listen: "127.0.0.1:0", Proposer: w, MinSessionTimeout: 100 * time.Millisecond}, b.Log(), tree, slog.New(slog.DiscardHandler))
	tree.OnEvent(w.Folded)
	runs(t, tree.Run, w.Run, s.Run)
	wait.Closed(t, "the port", s.Ready())
	wait.For(t, "the writer's lease", w.Writable)
	return &side{b, s.Addr(), tree, w}
}

// runs has them run until the test is over, or stop is called.
func runs(t *testing.T, all ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range all {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

func (s *side) client(t *testing.T) *zk.Conn {
	t.Helper()
	return oracle.ZKClient(t, s.addr, nil)
}

// proposals are those of the side's log from the sequence on that do something at the path.
func (s *side) proposals(t *testing.T, from uint64, at string) (all []*znode.Proposed) {
	t.Helper()
	s.read(t, from, func(e *znode.Event) {
		if slices.ContainsFunc(e.GetProposed().GetOps(), func(op *znode.Op) bool {
			return op.GetCreate().GetPath() == at || op.GetSetData().GetPath() == at || op.GetDelete().GetPath() == at || op.GetSetAcl().GetPath() == at
		}) {
			all = append(all, e.GetProposed())
		}
	})
	return all
}

// imports are those of the side's log.
func (s *side) imports(t *testing.T) (all []*znode.Imported) {
	t.Helper()
	s.read(t, 1, func(e *znode.Event) {
		if m := e.GetImported(); m != nil {
			all = append(all, m)
		}
	})
	return all
}

func (s *side) read(t *testing.T, from uint64, each func(*znode.Event)) {
	t.Helper()
	last := s.last(t)
	if from > last {
		return
	}
	err := s.Log().Follow(t.Context(), from, last, func(r events.Recorded) error {
		if e, ok := r.Event.(*znode.Event); ok {
			each(e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *side) last(t *testing.T) uint64 {
	t.Helper()
	last, err := s.Log().Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// mirror is a running one, on a tree of its own.
type mirror struct {
	*ensemble.Mirror
	stop    func()
	metrics *prometheus.Registry
	said    *said
}

// mirrors starts a mirror of here that imports through the port's writer.
func mirrors(t *testing.T, here, there *side, with func(*ensemble.Config)) *mirror {
	t.Helper()
	tree := follow.New(here.Log(), registry.Znode, follow.Options{})
	m := &mirror{metrics: prometheus.NewRegistry(), said: &said{}}
	cfg := ensemble.Config{
		Servers: []string{there.addr}, Chroot: chroot, BZID: namespace, Session: 6 * time.Second, Log: here.Log(), Metrics: m.metrics,
		Importer: &importer{Importer: here.writer.Importer(), side: here, tree: tree},
	}
	if with != nil {
		with(&cfg)
		if i, ok := cfg.Importer.(*importer); ok && i.tree == nil {
			*i = importer{Importer: here.writer.Importer(), side: here, tree: tree, judge: i.judge, after: i.after}
		}
	}
	var err error
	if m.Mirror, err = ensemble.New(cfg, tree, slog.New(m.said)); err != nil {
		t.Fatal(err)
	}
	m.stop = runs(t, tree.Run, func(ctx context.Context) error {
		if tree.Wait(ctx, here.last(t)) == nil {
			m.Run(ctx)
		}
		return nil
	})
	return m
}

// compared waits until the mirror has compared everything.
func (m *mirror) compared(t *testing.T) ensemble.Status {
	t.Helper()
	return m.shows(t, "a comparison of everything", func(s ensemble.Status) bool { return s.Connected && !s.Compared.IsZero() })
}

func (m *mirror) shows(t *testing.T, what string, is func(ensemble.Status) bool) (s ensemble.Status) {
	t.Helper()
	wait.Seen(t, what, func() (string, bool) {
		s = m.Status()
		return fmt.Sprintf("%+v, drift %+v\n%s", s, s.LastDrift, m.said), is(s)
	})
	return s
}

// gauge is the value of one of the mirror's metrics, summed over its labels.
func (m *mirror) gauge(t *testing.T, name, label string) (sum float64) {
	t.Helper()
	all, err := m.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, one := range f.GetMetric() {
			if f.GetName() == name && (label == "" || one.GetLabel()[0].GetValue() == label) {
				sum += one.GetGauge().GetValue() + one.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// importer waits for the mirror's own tree, as the one it is given promises for its own.
type importer struct {
	ensemble.Importer
	side  *side
	tree  *follow.Follower[view.State]
	judge func(m *znode.Imported) error // nil: everything may be imported
	after func(m *znode.Imported)       // nil: nothing happens before the mirror hears of it
}

func (i *importer) Import(ctx context.Context, seen []*znode.Imported) []error {
	errs := make([]error, len(seen))
	for k, m := range seen {
		if i.judge != nil {
			errs[k] = i.judge(m)
		}
		if errs[k] == nil {
			errs[k] = i.Importer.Import(ctx, seen[k:k+1])[0]
		}
	}
	for _, m := range seen {
		if i.after != nil {
			i.after(m)
		}
	}
	last, err := i.side.Log().Last(ctx)
	if err == nil {
		err = i.tree.Wait(ctx, last)
	}
	if err != nil {
		errs[0] = errors.Join(errs[0], err)
	}
	return errs
}

// said keeps what a mirror logs.
type said struct {
	mu  sync.Mutex
	all strings.Builder
}

func (s *said) Enabled(context.Context, slog.Level) bool { return true }
func (s *said) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *said) WithGroup(string) slog.Handler            { return s }
func (s *said) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool { s.all.WriteString("; " + a.String()); return true })
	s.all.WriteByte('\n')
	return nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// dump is everything at and below the paths: data, kind and access list.
func dump(c *zk.Conn, below string, paths ...string) string {
	var out bytes.Buffer
	for _, p := range paths {
		data, st, err := c.Get(below + p)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", p, err)
			continue
		}
		acl, st2, err := c.GetACL(below + p)
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", p, err)
			continue
		}
		fmt.Fprintf(&out, "%s %d bytes %.40q ephemeral=%v list %d %v\n", p, len(data), data, st.EphemeralOwner != 0, st2.Aversion, acl)
		names, _, err := c.Children(below + p)
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", p, err)
		}
		slices.Sort(names)
		for _, n := range names {
			out.WriteString(dump(c, below, p+"/"+n))
		}
	}
	return out.String()
}

// same waits until both sides show the same, and returns it.
func same(t *testing.T, what string, here, there *zk.Conn) (both string) {
	t.Helper()
	wait.Seen(t, what, func() (string, bool) {
		a, b := dump(here, "", "/test", "/monolith"), dump(there, chroot, "/test", "/monolith")
		both = a
		return "ours:\n" + a + "theirs:\n" + b, a == b
	})
	return both
}

// put makes a node and its parents.
func put(t *testing.T, c *zk.Conn, p, data string, flags int32) {
	t.Helper()
	var ups []string
	for up := path.Dir(p); up != "/"; up = path.Dir(up) {
		ups = append(ups, up)
	}
	for _, up := range slices.Backward(ups) {
		if _, err := c.Create(up, []byte{}, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatalf("%s: %v", up, err)
		}
	}
	if _, err := c.Create(p, []byte(data), flags, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatalf("%s: %v", p, err)
	}
}

func set(t *testing.T, c *zk.Conn, p, data string) {
	t.Helper()
	if _, err := c.Set(p, []byte(data), -1); err != nil {
		t.Fatalf("%s: %v", p, err)
	}
}

func remove(t *testing.T, c *zk.Conn, p string) {
	t.Helper()
	if err := c.Delete(p, -1); err != nil {
		t.Fatalf("%s: %v", p, err)
	}
}

func setACL(t *testing.T, c *zk.Conn, p string, acl []zk.ACL) {
	t.Helper()
	if _, err := c.SetACL(p, acl, -1); err != nil {
		t.Fatalf("%s: %v", p, err)
	}
}

// holds waits until the node has the data; "-": until it is gone.
func holds(t *testing.T, c *zk.Conn, p, data string) {
	t.Helper()
	wait.Seen(t, fmt.Sprintf("%s with %q", p, data), func() (string, bool) {
		got, _, err := c.Get(p)
		if errors.Is(err, zk.ErrNoNode) {
			got, err = []byte("-"), nil
		}
		return fmt.Sprintf("%.40q, %v", got, err), err == nil && string(got) == data
	})
}

// lines are the mirror's connections.
type lines struct {
	mu     sync.Mutex
	open   []*line
	down   bool
	before func(*line, []byte) []byte // what is sent passes through it; nil: as it is
}

type line struct {
	net.Conn
	of   *lines
	lose atomic.Bool // the next answer, and the connection with it
}

func (l *lines) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errors.New("the network is down")
	}
	c, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	l.open = append(l.open, &line{Conn: c, of: l})
	return l.open[len(l.open)-1], nil
}

func (c *line) Write(b []byte) (int, error) {
	c.of.mu.Lock()
	before := c.of.before
	c.of.mu.Unlock()
	if before == nil {
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write(before(c, bytes.Clone(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (c *line) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.lose.Load() {
		return 0, errors.Join(errLost, c.Close())
	}
	return n, err
}

var errLost = errors.New("the answer is lost")

// cut closes every connection that is open.
func (l *lines) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.Close()
	}
}

func (l *lines) set(down bool) {
	l.mu.Lock()
	l.down = down
	l.mu.Unlock()
}
